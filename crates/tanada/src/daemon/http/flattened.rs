//! Schemas of objects that are made of parts (`serde(flatten)`): one object to clients.

use std::collections::{BTreeMap, BTreeSet};

use utoipa::openapi::{Object, RefOr, Schema};

/// The schemas of a document, by name.
pub type Schemas = BTreeMap<String, RefOr<Schema>>;

/// An object whose parts are flattened into it is one object to clients, and its parts are no schemas, but for those that
/// are also used for themselves.
pub fn whole(mut schemas: Schemas, is_used: impl Fn(&str) -> bool) -> Schemas {
    let (mut parts, mut made) = (BTreeSet::new(), Schemas::new());
    for (name, schema) in &schemas {
        let RefOr::T(Schema::AllOf(all)) = schema else {
            continue;
        };
        let mut object = Object::default();
        object.description.clone_from(&all.description);
        for item in &all.items {
            let part = match item {
                RefOr::Ref(to) => {
                    let part = to.ref_location.trim_start_matches("#/components/schemas/");
                    parts.insert(part.to_owned());
                    schemas.get(part)
                }
                own => Some(own),
            };
            if let Some(RefOr::T(Schema::Object(part))) = part {
                object.required.extend(part.required.iter().cloned());
                object.properties.extend(part.properties.clone());
            }
        }
        made.insert(name.clone(), RefOr::T(Schema::Object(object)));
    }
    schemas.extend(made);
    schemas.retain(|name, _| !parts.contains(name) || is_used(name));
    schemas
}
