//! One description per message, from which its struct, its reading and its writing follow.

use bytes::{Bytes, BytesMut};

use super::api::ApiKey;
use super::decode::{Cursor, DecodeError, Elements, prefix, whole};
use super::wire::{Layout, Wire};

/// The body of a request or of a response.
pub trait Message: Sized {
    /// Its API.
    const KEY: ApiKey;

    /// Reads a whole body, which shares its memory with what is returned. Bytes that are left over are an error.
    fn decode(body: &Bytes, version: i16) -> Result<Self, DecodeError>;

    /// Reads a body that other bytes may follow. Kafka's brokers do not look at what follows a request, and librdkafka 2.12
    /// leaves three bytes behind a Metadata for all topics.
    fn decode_prefix(body: &Bytes, version: i16) -> Result<Self, DecodeError>;

    /// Appends the body. Fields that the version lacks are left out; a null that it cannot carry becomes an empty value.
    ///
    /// # Panics
    /// When the version is not one of [`ApiKey::known_versions`].
    fn encode(&self, version: i16, out: &mut BytesMut);

    /// The first field that is not at its default although the version cannot carry it: what [`Message::encode`] would
    /// drop in silence.
    fn lost_in(&self, version: i16) -> Option<&'static str>;
}

/// A request, with the response that belongs to it.
pub trait Request: Message {
    /// What a broker answers.
    type Response: Message;
}

pub(crate) fn decode_body<T: Wire>(key: ApiKey, body: &Bytes, version: i16) -> Result<T, DecodeError> {
    let layout = layout_to_decode(key, version)?;
    whole(Cursor::new(body, &Elements::new()), |input| T::read(input, layout))
}

pub(crate) fn decode_body_prefix<T: Wire>(key: ApiKey, body: &Bytes, version: i16) -> Result<T, DecodeError> {
    let layout = layout_to_decode(key, version)?;
    prefix(Cursor::new(body, &Elements::new()), |input| T::read(input, layout)).map(|(_, value)| value)
}

fn layout_to_decode(key: ApiKey, version: i16) -> Result<Layout, DecodeError> {
    #[cfg(test)]
    crate::tests::count(crate::tests::Work::Decode);
    if !key.known_versions().contains(version) {
        return Err(DecodeError::Version { key: key.into(), version });
    }
    Ok(Layout { version, flexible: key.is_flexible(version) })
}

pub(crate) fn encode_body<T: Wire>(key: ApiKey, value: &T, version: i16, out: &mut BytesMut) {
    assert!(key.known_versions().contains(version), "{key:?} has no known version {version}");
    value.write(out, Layout { version, flexible: key.is_flexible(version) });
}

/// Describes a struct of the protocol.
///
/// `pub struct Name for Api { .. }` is a whole body and gets [`Message`]; without `for` it is a part of one. Each field
/// carries its rules in brackets, versions first, as ranges:
///
/// - `[3..]`: present from version 3;
/// - `[3.., nullable 7..]`: an `Option` that can be null from version 7 only;
/// - `[3.., default -1]`: the protocol's default, where it is not Rust's;
/// - `[tag 0, 12..]`: a tagged field, an `Option` that is `None` when absent. Tags ascend.
///
/// Unknown tagged fields are skipped and never written.
macro_rules! message {
    ($(#[$meta:meta])* pub struct $name:ident for $key:ident { $($body:tt)* }) => {
        $crate::kafka::message::message! { $(#[$meta])* pub struct $name { $($body)* } }

        impl $crate::kafka::Message for $name {
            const KEY: $crate::kafka::ApiKey = $crate::kafka::ApiKey::$key;

            fn decode(body: &bytes::Bytes, version: i16) -> Result<Self, $crate::kafka::DecodeError> {
                $crate::kafka::message::decode_body(Self::KEY, body, version)
            }

            fn decode_prefix(body: &bytes::Bytes, version: i16) -> Result<Self, $crate::kafka::DecodeError> {
                $crate::kafka::message::decode_body_prefix(Self::KEY, body, version)
            }

            fn encode(&self, version: i16, out: &mut bytes::BytesMut) {
                $crate::kafka::message::encode_body(Self::KEY, self, version, out);
            }

            fn lost_in(&self, version: i16) -> Option<&'static str> {
                let flexible = Self::KEY.is_flexible(version);
                $crate::kafka::wire::Wire::lost(self, $crate::kafka::wire::Layout { version, flexible })
            }
        }
    };

    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident : $type:ty [$($rules:tt)*]),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::kafka::message::field!(default $($rules)*),)* }
            }
        }

        impl $crate::kafka::wire::Wire for $name {
            fn read(
                input: $crate::kafka::decode::Cursor<'_>,
                layout: $crate::kafka::wire::Layout,
            ) -> $crate::kafka::decode::Parsed<'_, Self> {
                #[allow(unused_mut)]
                let mut rest = input;
                #[allow(unused_mut)]
                let mut value = Self::default();
                $($crate::kafka::message::field!(read (value.$field) rest layout $($rules)*);)*
                if layout.flexible {
                    (rest, ()) = $crate::kafka::wire::tagged_fields(rest, rest.elements(), |tag, content| {
                        let _ = (tag, content);
                        $($crate::kafka::message::field!(read_tag (value.$field) tag content layout $($rules)*);)*
                        Ok(())
                    })?;
                }
                Ok((rest, value))
            }

            fn write(&self, out: &mut bytes::BytesMut, layout: $crate::kafka::wire::Layout) {
                $($crate::kafka::message::field!(write (self.$field) out layout $($rules)*);)*
                if layout.flexible {
                    #[allow(unused_mut)]
                    let mut tagged = $crate::kafka::wire::TaggedFields::default();
                    $($crate::kafka::message::field!(write_tag (self.$field) tagged layout $($rules)*);)*
                    tagged.finish(out);
                }
            }

            fn lost(&self, layout: $crate::kafka::wire::Layout) -> Option<&'static str> {
                let defaults = Self::default();
                let _ = (layout, &defaults);
                $(if !$crate::kafka::message::field!(present layout $($rules)*) && self.$field != defaults.$field {
                    return Some(stringify!($field));
                })*
                $(if let Some(field) = $crate::kafka::message::field!(lost (self.$field) layout $($rules)*) {
                    return Some(field);
                })*
                None
            }

            #[cfg(test)]
            fn sample(draw: &mut $crate::kafka::tests::Draw<'_>, layout: $crate::kafka::wire::Layout) -> Self {
                #[allow(unused_mut)]
                let mut value = Self::default();
                let _ = (&draw, layout);
                $($crate::kafka::message::field!(sample (value.$field) draw layout $($rules)*);)*
                value
            }
        }
    };
}

/// The parts of [`message!`] that depend on a field's rules.
macro_rules! field {
    (default tag $tag:literal, $versions:expr) => { None };
    (default $versions:expr) => { Default::default() };
    (default $versions:expr, default $default:expr) => { $default };
    (default $versions:expr, nullable $nullable:expr) => { Default::default() };

    (present $layout:ident tag $tag:literal, $versions:expr) => {
        ($layout.flexible && ($versions).contains(&$layout.version))
    };
    (present $layout:ident $versions:expr $(, $rule:ident $argument:expr)?) => {
        ($versions).contains(&$layout.version)
    };

    (read ($($field:tt)*) $rest:ident $layout:ident tag $tag:literal, $versions:expr) => {};
    (read ($($field:tt)*) $rest:ident $layout:ident $versions:expr, nullable $nullable:expr) => {
        if ($versions).contains(&$layout.version) {
            ($rest, $($field)*) = $crate::kafka::wire::Wire::read($rest, $layout)?;
            if $($field)*.is_none() && !($nullable).contains(&$layout.version) {
                return Err($crate::kafka::decode::failure($crate::kafka::DecodeError::Null));
            }
        }
    };
    (read ($($field:tt)*) $rest:ident $layout:ident $versions:expr $(, default $default:expr)?) => {
        if ($versions).contains(&$layout.version) {
            ($rest, $($field)*) = $crate::kafka::wire::Wire::read($rest, $layout)?;
        }
    };

    (read_tag ($($field:tt)*) $found:ident $content:ident $layout:ident tag $tag:literal, $versions:expr) => {
        if $found == $tag && ($versions).contains(&$layout.version) {
            let read = |input| $crate::kafka::wire::Wire::read(input, $layout);
            $($field)* = Some($crate::kafka::decode::whole($content, read)?);
        }
    };
    (read_tag ($($field:tt)*) $found:ident $content:ident $layout:ident $($rules:tt)*) => {};

    (write ($($field:tt)*) $out:ident $layout:ident tag $tag:literal, $versions:expr) => {};
    (write ($($field:tt)*) $out:ident $layout:ident $versions:expr, nullable $nullable:expr) => {
        if ($versions).contains(&$layout.version) {
            if ($nullable).contains(&$layout.version) {
                $crate::kafka::wire::Wire::write(&$($field)*, $out, $layout);
            } else {
                $crate::kafka::wire::write_not_null(&$($field)*, $out, $layout);
            }
        }
    };
    (write ($($field:tt)*) $out:ident $layout:ident $versions:expr $(, default $default:expr)?) => {
        if ($versions).contains(&$layout.version) {
            $crate::kafka::wire::Wire::write(&$($field)*, $out, $layout);
        }
    };

    (write_tag ($($field:tt)*) $tagged:ident $layout:ident tag $tag:literal, $versions:expr) => {
        if let Some(value) = &$($field)* && ($versions).contains(&$layout.version) {
            $tagged.put($tag, value, $layout);
        }
    };
    (write_tag ($($field:tt)*) $tagged:ident $layout:ident $($rules:tt)*) => {};

    (lost ($($field:tt)*) $layout:ident tag $tag:literal, $versions:expr) => {
        $($field)*.as_ref().and_then(|value| $crate::kafka::wire::Wire::lost(value, $layout))
    };
    (lost ($($field:tt)*) $layout:ident $versions:expr $(, $rule:ident $argument:expr)?) => {
        $crate::kafka::wire::Wire::lost(&$($field)*, $layout)
    };

    (sample ($($field:tt)*) $draw:ident $layout:ident tag $tag:literal, $versions:expr) => {
        if $layout.flexible && ($versions).contains(&$layout.version) && $draw.below(2) == 1 {
            $($field)* = $crate::kafka::tests::sample_tagged($draw, $layout);
        }
    };
    (sample ($($field:tt)*) $draw:ident $layout:ident $versions:expr, nullable $nullable:expr) => {
        if ($versions).contains(&$layout.version) {
            $($field)* = $crate::kafka::wire::Wire::sample($draw, $layout);
            if !($nullable).contains(&$layout.version) {
                $($field)*.get_or_insert_default();
            }
        }
    };
    (sample ($($field:tt)*) $draw:ident $layout:ident $versions:expr $(, default $default:expr)?) => {
        if ($versions).contains(&$layout.version) {
            $($field)* = $crate::kafka::wire::Wire::sample($draw, $layout);
        }
    };
}

pub(crate) use {field, message};
