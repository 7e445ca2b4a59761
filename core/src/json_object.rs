//! JSON objects as the writers and readers of this contract know them: member names in any case, the last of repeated
//! members counts, and nothing but an object stands for an object.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

/// Takes the members of one JSON object as they come.
pub(crate) trait Members: Default {
    /// What is expected, for error texts.
    const WHAT: &'static str;

    /// Reads the value of `name` from `map`.
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// A JSON object read through [`Members`]. Not derived: a derived reader refuses repeated members and knows names
/// in one spelling only.
pub(crate) struct Object<M>(pub(crate) M);

impl<'de, M: Members> Deserialize<'de> for Object<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<M>(PhantomData<M>);

        impl<'de, M: Members> Visitor<'de> for ObjectVisitor<M> {
            type Value = Object<M>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(M::WHAT)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = M::default();
                while let Some(mut name) = map.next_key::<String>()? {
                    name.make_ascii_lowercase();
                    members.member(&name, &mut map)?;
                }
                Ok(Object(members))
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Passes over the value of a member that nobody asked for.
pub(crate) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|IgnoredAny| ())
}
