//! Objects and versions: deleted, one or many.

use s3s::dto::*;
use s3s::{S3Error, S3Response, S3Result, s3_error};

use super::asked::Asked;
use super::conditions::of_change;
use super::core::{Answer, Gateway, Request};
use super::failure::failed;
use super::headers::seconds;
use super::objects::{KEY_MAX, version_of};
use super::policies::Action;
use crate::index::lock::Change;
use crate::index::{Condition, DeleteIf, Deleted, IndexError, Transaction};

/// The most keys of one deletion.
const DELETE_MAX: usize = 1000;

pub(super) async fn delete(
    gateway: &Gateway,
    request: Request<DeleteObjectInput>,
) -> Answer<DeleteObjectOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::DeleteObject)?;
    let input = request.input;
    let asked = asked.key(&input.key).version(input.version_id.as_deref());
    let (id, change) = gateway.judged(&asked.bucket, |judge, bucket| {
        judge.check(&asked, None)?;
        let bypass = judge.bypasses(&asked);
        let now = gateway.now();
        Ok::<_, S3Error>((bucket.id, Change { now, bypass }))
    })??;
    let version = version_of(&input.key, input.version_id.as_deref())?;
    let expected = DeleteIf {
        etag: of_change(input.if_match.as_ref(), None)?,
        modified: input.if_match_last_modified_time.as_ref().map(seconds),
        size: input.if_match_size.and_then(|it| u64::try_from(it).ok()),
    };
    let (key, account) = (input.key, asked.caller.account);
    let delete = move |t: &mut Transaction<'_>| {
        t.is_still(&input.bucket, id)?;
        let at = (&*input.bucket, &*key);
        t.delete(at, version, &expected, (&account, change))
    };
    let deleted = gateway.index.change(delete).await.map_err(failed)?;
    Ok(S3Response::new(DeleteObjectOutput {
        delete_marker: deleted.marker.then_some(true),
        version_id: deleted.version.map(|it| it.to_string()),
        ..DeleteObjectOutput::default()
    }))
}

/// Deletes one of several; what is refused keeps none of the others.
fn delete_one(
    t: &mut Transaction<'_>,
    bucket: &str,
    object: &ObjectIdentifier,
    by: (&str, Change),
) -> Result<S3Result<Deleted>, IndexError> {
    if object.key.len() > KEY_MAX {
        return Ok(Err(s3_error!(KeyTooLongError)));
    }
    let version = match version_of(&object.key, object.version_id.as_deref()) {
        Ok(version) => version,
        Err(refused) => return Ok(Err(refused)),
    };
    let expected = DeleteIf {
        etag: match &object.e_tag {
            Some(etag) => Condition::Etag(etag.value().to_owned()),
            None => Condition::Any,
        },
        modified: object.last_modified_time.as_ref().map(seconds),
        size: object.size.and_then(|it| u64::try_from(it).ok()),
    };
    match t.delete((bucket, &object.key), version, &expected, by) {
        Ok(deleted) => Ok(Ok(deleted)),
        Err(IndexError::Refused(refused)) => Ok(Err(failed(refused.into()))),
        Err(error) => Err(error),
    }
}

pub(super) async fn delete_many(
    gateway: &Gateway,
    request: Request<DeleteObjectsInput>,
) -> Answer<DeleteObjectsOutput> {
    let asked = Asked::of(&request, &request.input.bucket, Action::DeleteObject)?;
    let input = request.input;
    let named = input.delete.objects;
    if named.len() > DELETE_MAX {
        return Err(s3_error!(
            MalformedXML,
            "one request deletes at most {DELETE_MAX} keys"
        ));
    }
    let now = gateway.now();
    let (id, judged) = gateway.judged(&asked.bucket, |judge, bucket| {
        let each = named.into_iter().map(|object| {
            if object.key.len() > KEY_MAX {
                let error = s3_error!(KeyTooLongError, "a key has 1 to {KEY_MAX} bytes");
                return (object, Err(error));
            }
            let asked = asked.clone().key(&object.key);
            let asked = asked.version(object.version_id.as_deref());
            let bypass = judge.bypasses(&asked);
            let may = judge.check(&asked, None);
            (object, may.map(|()| Change { now, bypass }))
        });
        (bucket.id, each.collect::<Vec<_>>())
    })?;
    let (bucket, account) = (input.bucket, asked.caller.account);
    let delete = move |t: &mut Transaction<'_>| {
        t.is_still(&bucket, id)?;
        let each = judged.into_iter().map(|(object, may)| {
            let outcome = match may {
                Ok(change) => delete_one(t, &bucket, &object, (&account, change))?,
                Err(denied) => Err(denied),
            };
            Ok((object, outcome))
        });
        each.collect::<Result<Vec<_>, _>>()
    };
    let done = gateway.index.change(delete).await.map_err(failed)?;
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (object, outcome) in done {
        match outcome {
            Ok(outcome) => deleted.push(shown_deletion(object, outcome)),
            Err(error) => errors.push(Error {
                code: Some(error.code().as_str().to_owned()),
                message: error.message().map(str::to_owned),
                key: Some(object.key),
                version_id: object.version_id,
            }),
        }
    }
    let quiet = input.delete.quiet == Some(true);
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: (!quiet).then_some(deleted),
        errors: (!errors.is_empty()).then_some(errors),
        ..DeleteObjectsOutput::default()
    }))
}

fn shown_deletion(object: ObjectIdentifier, deleted: Deleted) -> DeletedObject {
    let made_or_removed = deleted.version.map(|it| it.to_string());
    DeletedObject {
        delete_marker: deleted.marker.then_some(true),
        delete_marker_version_id: made_or_removed.filter(|_| deleted.marker),
        key: Some(object.key),
        version_id: object.version_id,
    }
}
