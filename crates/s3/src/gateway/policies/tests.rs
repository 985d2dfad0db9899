//! Policies as tables: what is written, what is asked, what is said of it.

use std::collections::BTreeMap;

use super::*;

const EVERY: &str =
    r#""Effect":"Allow","Principal":"*","Action":"*","Resource":"arn:aws:s3:::photos/*""#;

fn find(name: &str) -> Option<String> {
    ["astro", "bio"]
        .iter()
        .find(|it| *it == &name)
        .map(|it| format!("{it}.1"))
}

fn parse(statements: &str) -> Result<Policy, PolicyError> {
    let text = format!(r#"{{"Version":"2012-10-17","Statement":[{statements}]}}"#);
    Policy::parse(&text, "photos", &find)
}

/// What is said by the key of a condition; `tag=` is one that the object has, `-` that it was looked at and has none.
fn judge(policy: &Policy, account: &str, action: Action, resource: &str, said: &str) -> Verdict {
    let pairs = said.split_whitespace().map(|it| {
        let (name, value) = it.split_once('=').unwrap_or((it, ""));
        (name.to_owned(), value.to_owned())
    });
    let (tags, said): (Vec<_>, Vec<_>) =
        pairs.partition(|it| it.0.starts_with("tag:") || it.0 == "-");
    let tags: BTreeMap<String, String> = (tags.into_iter())
        .map(|(name, value)| (name.trim_start_matches("tag:").to_owned(), value))
        .collect();
    policy.judge(&Facts {
        account,
        action,
        resource,
        said: &said.into_iter().collect(),
        tags: (!tags.is_empty()).then_some(&tags),
    })
}

/// Lines of a table, without its comments, in columns.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = table.lines().map(str::trim);
    let lines = lines.filter(|it| !it.is_empty() && !it.starts_with('#'));
    lines.map(|it| it.split(" | ").map(str::trim).collect())
}

/// A policy of one statement, with another element in place of its own or beside them.
fn with(element: &str) -> String {
    let name = element.split(':').next().unwrap_or_default();
    let own = [
        r#""Effect":"Allow""#,
        r#""Principal":"*""#,
        r#""Action":"*""#,
        r#""Resource":"arn:aws:s3:::photos/*""#,
    ];
    let others = own.iter().filter(|it| !it.starts_with(name));
    let all: Vec<&str> = others.copied().chain([element]).collect();
    format!("{{{}}}", all.join(","))
}

/// Effect, principal, action and resource of each statement; who does what with which; what is said of it.
const WHO: &str = r#"
Allow "astro" "s3:GetObject" "photos/pub/*" | astro.1 GetObject photos/pub/a | Allow
Allow "astro" "S3:getobject" "photos/pub/*" | astro.1 GetObject photos/pub/a | Allow
Allow "astro" "s3:GetObject" "photos/pub/*" | astro.2 GetObject photos/pub/a | Silent
Allow "astro" "s3:GetObject" "photos/pub/*" | bio.1 GetObject photos/pub/a | Silent
Allow "astro" "s3:GetObject" "photos/pub/*" | astro.1 GetObjectVersion photos/pub/a | Silent
Allow "astro" "s3:GetObject" "photos/pub/*" | astro.1 GetObject photos/pub | Silent
Allow "astro" "s3:GetObject" "photos/pub/*" | astro.1 PutObject photos/pub/a | Silent
Allow "astro" "s3:PutObject" "photos"       | astro.1 PutObject photos/a | Silent
Allow "*" "s3:Get*" "photos/pub/*"          | geo.9 GetObjectTagging photos/pub/a | Allow
Allow "bio" "*" "photos"                    | bio.1 ListBucket photos | Allow
Allow "*" "s3:*" "photos*", Deny "bio" "s3:Put*" "*" | astro.1 PutObject photos/a | Allow
Allow "*" "s3:*" "photos*", Deny "bio" "s3:Put*" "*" | bio.1 PutObject photos/a | Deny
Allow "*" "s3:*" "photos*", Deny "bio" "s3:Put*" "*" | bio.1 GetObject photos/a | Allow
Allow "*" "s3:*" "photos*", Deny "bio" not "s3:Get*" "*" | bio.1 DeleteObject photos/a | Deny
Allow "*" "s3:*" "photos*", Deny "bio" not "s3:Get*" "*" | bio.1 GetObject photos/a | Allow
"#;

#[test]
fn who_does_what_with_which_object_decides() {
    for row in rows(WHO) {
        let statements = row[0].split(", ").map(|text| {
            let action = if text.contains(" not ") { "NotAction" } else { "Action" };
            let text = text.replace(" not ", " ").replace('"', "");
            let words: Vec<&str> = text.split_whitespace().collect();
            format!(
                r#"{{"Effect":"{}","Principal":{{"AWS":["{}"]}},"{action}":["{}"],"Resource":"arn:aws:s3:::{}"}}"#,
                words[0], words[1], words[2], words[3]
            )
        });
        let policy = parse(&statements.collect::<Vec<_>>().join(",")).unwrap();
        let words: Vec<&str> = row[1].split_whitespace().collect();
        let named = |it: &&Action| it.name()[3..] == *words[1];
        let action = Action::ALL.iter().find(named).unwrap();
        let found = judge(&policy, words[0], *action, words[2], "");
        assert_eq!(format!("{found:?}"), row[2], "{row:?}");
    }
}

/// What stands under Condition; what is said; does it hold, where a statement allows, and where one denies?
const CONDITIONS: &str = r#"
"StringEquals":{"s3:prefix":["a/","b/"]} | s3:prefix=b/ | yes yes
"StringEquals":{"S3:Prefix":"a/"}        | s3:prefix=A/ | no no
"StringEquals":{"s3:prefix":"a/"}        | | no no
"StringEqualsIfExists":{"s3:prefix":"a/"} | | yes yes
"StringEqualsIfExists":{"s3:prefix":"a/"} | s3:prefix=b | no no
"StringNotEquals":{"s3:prefix":["a/","b/"]} | s3:prefix=b/ | no no
"StringNotEquals":{"s3:prefix":"a/"}     | | yes yes
"StringEqualsIgnoreCase":{"s3:x-amz-acl":"PRIVATE"} | s3:x-amz-acl=private | yes yes
"StringLike":{"s3:x-amz-acl":"public*"}  | s3:x-amz-acl=public-read | yes yes
"StringNotLike":{"s3:x-amz-acl":"public*"} | s3:x-amz-acl=public-read | no no
"NumericLessThanEquals":{"s3:max-keys":10} | s3:max-keys=10 | yes yes
"NumericGreaterThan":{"s3:max-keys":"10"} | s3:max-keys=9 | no no
"NumericNotEquals":{"s3:max-keys":"10"}  | s3:max-keys=9 | yes yes
"Null":{"s3:x-amz-acl":true}             | | yes yes
"Null":{"s3:x-amz-acl":"false"}          | | no no
"Bool":{"aws:SecureTransport":false}     | aws:securetransport=false | yes yes
"IpAddress":{"aws:SourceIp":["10.0.0.0/8","::1"]} | aws:sourceip=10.9.8.7 | yes yes
"IpAddress":{"aws:SourceIp":"10.0.0.0/8"} | aws:sourceip=::ffff:10.1.1.1 | yes yes
"IpAddress":{"aws:SourceIp":"10.0.0.0/8"} | aws:sourceip=11.0.0.1 | no no
"NotIpAddress":{"aws:SourceIp":"2001:db8::/32"} | aws:sourceip=2001:db9::1 | yes yes
"IpAddress":{"aws:SourceIp":"0.0.0.0/0"} | aws:sourceip=1.2.3.4 | yes yes
"IpAddress":{"aws:SourceIp":"::/0"}      | aws:sourceip=2001:db8::1 | yes yes
"StringEquals":{"s3:RequestObjectTag/a":"1"}  | s3:requestobjecttag/a=1 | yes yes
"StringEquals":{"s3:ExistingObjectTag/a":"1"} | tag:a=1 | yes yes
"StringEquals":{"s3:ExistingObjectTag/a":"1"} | tag:A=1 | no no
"StringNotEquals":{"s3:ExistingObjectTag/a":"1"} | - | yes yes
"StringEquals":{"s3:prefix":"a"},"StringLike":{"s3:x-amz-acl":"p*"} | s3:prefix=a | no no
# What was not looked at, or not passed on, allows nothing and denies.
"StringEquals":{"s3:ExistingObjectTag/a":"1"} | | no yes
"StringNotEquals":{"s3:ExistingObjectTag/a":"1"} | | no yes
"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"} | | no yes
"IpAddressIfExists":{"aws:SourceIp":"10.0.0.0/8"} | | no yes
"Bool":{"aws:SecureTransport":"false"}   | | no yes
"#;

#[test]
fn conditions_compare_what_a_request_says() {
    for row in rows(&CONDITIONS.replace("| |", "|  | ")) {
        let expected = row[2].split_whitespace();
        for (effect, holds) in ["Allow", "Deny"].into_iter().zip(expected) {
            let condition = format!("\"Condition\":{{{}}}", row[0]);
            let policy = parse(&with(&condition).replace("Allow", effect)).unwrap();
            let found = judge(&policy, "bio.1", Action::GetObject, "photos/a", row[1]);
            assert_eq!(found != Verdict::Silent, holds == "yes", "{effect} {row:?}");
        }
    }
}

/// Elements that make a policy none.
const REFUSED: &str = r#"
"Condition":{"StringMatches":{"s3:prefix":"a"}}
"Condition":{"ForAllValues:StringEquals":{"s3:prefix":"a"}}
"Condition":{"stringequals":{"s3:prefix":"a"}}
"Condition":{"StringEquals":{"s3:colour":"a"}}
"Condition":{"StringEquals":{"aws:username":"a"}}
"Condition":{"StringEquals":{"s3:ExistingObjectTag/":"a"}}
"Condition":{"StringEquals":{"aws:SourceIp":"10.0.0.1"}}
"Condition":{"StringEquals":{"s3:prefix":"${aws:username}"}}
"Condition":{"StringEquals":{"s3:prefix":[]}}
"Condition":{"StringEquals":{"s3:prefix":{"a":"b"}}}
"Condition":{"StringEquals":{"s3:prefix":"a","s3:prefix":"b"}}
"Condition":{"StringEquals":{"s3:prefix":"a"},"StringEquals":{"s3:delimiter":"b"}}
"Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/33"}}
"Condition":{"NumericEquals":{"s3:max-keys":"ten"}}
"Condition":{"NumericEquals":{"s3:max-keys":1.5}}
"Condition":{"Bool":{"aws:SecureTransport":"no"}}
"Condition":{"NullIfExists":{"s3:prefix":"true"}}
"Condition":"none"
"NotPrincipal":{"AWS":"astro"}
"NotResource":"arn:aws:s3:::photos/a"
"NotAction":"s3:GetObject"
"Colour":"red"
"Effect":"allow"
"Effect":"Allow","Effect":"Deny"
"Principal":"astro"
"Principal":{}
"Principal":{"AWS":[]}
"Principal":{"AWS":"geo"}
"Principal":{"AWS":["*","geo"]}
"Principal":{"AWS":"arn:aws:iam::*:root"}
"Principal":{"AWS":"arn:aws:iam::x:user/astro"}
"Principal":{"Federated":"astro"}
"Principal":{"AWS":"*","Federated":"astro"}
"Action":"s3:GetObjects"
"Action":[]
"Action":"ec2:*"
"Resource":"arn:aws:s3:::movies/*"
"Resource":"arn:aws:s3:::photos/${aws:username}/*"
"Resource":"photos/*"
"Resource":[]
"#;

#[test]
fn what_is_not_understood_is_refused_and_never_ignored() {
    for element in REFUSED.lines().filter(|it| !it.is_empty()) {
        assert!(parse(&with(element)).is_err(), "{element}");
    }
    let every = format!("{{{EVERY}}}");
    assert!(parse(&every).is_ok());
    let long = format!(r#"{{"Sid":"{}",{EVERY}}}"#, "x".repeat(POLICY_MAX));
    let costly = every.replace(
        "photos/*",
        &format!("photos/*{}*", "a".repeat(PATTERNS_MAX)),
    );
    let of_all = every.replace(r#""Principal":"*","#, "");
    for text in ["{}", "", &long, &costly, &of_all, &"[".repeat(300)] {
        assert!(parse(text).is_err(), "{text:.200}");
    }
    for text in [
        r#"{"Statement":[]}"#.to_owned(),
        format!(r#"{{"Version":"2020-01-01","Statement":[{every}]}}"#),
        format!(r#"{{"Statement":[{every}],"Extra":1}}"#),
        format!(r#"{{"Statement":[{every}],"Statement":[]}}"#),
        "[]".to_owned(),
    ] {
        assert!(Policy::parse(&text, "photos", &find).is_err(), "{text}");
    }
    let error = parse(&every.replace("photos/*", "movies/*")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the policy is not understood: resource \"arn:aws:s3:::movies/*\" is nothing of this bucket: write \
         arn:aws:s3:::photos or arn:aws:s3:::photos/KEY"
    );
}

#[test]
fn a_policy_is_public_unless_it_names_accounts_or_narrow_networks() {
    let only = |condition: &str| format!("{{{EVERY},\"Condition\":{{{condition}}}}}");
    for (text, public) in [
        (format!("{{{EVERY}}}"), true),
        (format!("{{{}}}", EVERY.replace("Allow", "Deny")), false),
        (
            format!(
                "{{{}}}",
                EVERY.replace("\"*\",\"A", "{\"AWS\":\"bio\"},\"A")
            ),
            false,
        ),
        (only(r#""IpAddress":{"aws:SourceIp":"10.0.0.0/32"}"#), false),
        (
            only(r#""IpAddress":{"aws:SourceIp":["10.0.0.0/32","0.0.0.0/1"]}"#),
            true,
        ),
        (
            only(r#""NotIpAddress":{"aws:SourceIp":"10.0.0.0/32"}"#),
            true,
        ),
        (
            only(r#""IpAddressIfExists":{"aws:SourceIp":"10.0.0.0/32"}"#),
            true,
        ),
        (only(r#""StringLike":{"aws:Referer":"http://a/*"}"#), true),
    ] {
        assert_eq!(parse(&text).unwrap().is_public(), public, "{text}");
    }
}
