//! What the scans of the hot path share: parsers that borrow from a body instead of building a message.

use nom::bytes::complete::take;
use nom::{IResult, Parser};

use super::api::ApiKey;
use super::decode::{DecodeError, Elements, failure};
use super::string::Str;
use super::wire::{Layout, long_length, string_length, tagged_fields};

pub(crate) type Scanned<'a, T> = IResult<&'a [u8], T, DecodeError>;

/// The layout of a version, if it is known.
pub(crate) fn layout(api: ApiKey, version: i16) -> Result<Layout, DecodeError> {
    if api.known_versions().contains(version) {
        Ok(Layout { version, flexible: api.is_flexible(version) })
    } else {
        Err(DecodeError::Version { key: api.into(), version })
    }
}

pub(crate) fn nullable_string(input: &[u8], layout: Layout) -> Scanned<'_, Option<&str>> {
    let (rest, length) = string_length(input, layout.flexible)?;
    let Some(length) = length else { return Ok((rest, None)) };
    let (rest, bytes) = take(length)(rest)?;
    if length > Str::MAX_LEN {
        return Err(failure(DecodeError::Length));
    }
    Ok((rest, Some(std::str::from_utf8(bytes).map_err(|_| failure(DecodeError::Utf8))?)))
}

pub(crate) fn string(input: &[u8], layout: Layout) -> Scanned<'_, &str> {
    let (rest, text) = nullable_string(input, layout)?;
    Ok((rest, text.ok_or_else(|| failure(DecodeError::Null))?))
}

pub(crate) fn nullable_bytes(input: &[u8], layout: Layout) -> Scanned<'_, Option<&[u8]>> {
    let (rest, length) = long_length(input, layout.flexible)?;
    match length {
        None => Ok((rest, None)),
        Some(length) => take(length).map(Some).parse(rest),
    }
}

/// Number of elements of an array that cannot be null, refused when they cannot be there.
pub(crate) fn array_length<'a>(input: &'a [u8], layout: Layout, elements: &Elements) -> Scanned<'a, usize> {
    match nullable_array_length(input, layout, elements)? {
        (rest, Some(length)) => Ok((rest, length)),
        (_, None) => Err(failure(DecodeError::Null)),
    }
}

/// As [`array_length`], `None` for null.
pub(crate) fn nullable_array_length<'a>(
    input: &'a [u8],
    layout: Layout,
    elements: &Elements,
) -> Scanned<'a, Option<usize>> {
    let (rest, length) = long_length(input, layout.flexible)?;
    if length.is_some_and(|length| length > rest.len()) {
        return Err(failure(DecodeError::Truncated));
    }
    elements.take(length.unwrap_or(0))?;
    Ok((rest, length))
}

/// Skips the tagged fields of a struct, if it has any; `allowed` are those that may be passed on. True if there are others.
pub(crate) fn tags<'a>(input: &'a [u8], layout: Layout, elements: &Elements, allowed: &[u32]) -> Scanned<'a, bool> {
    if !layout.flexible {
        return Ok((input, false));
    }
    let mut others = false;
    let (rest, ()) = tagged_fields(input, elements, |tag, _| {
        others |= !allowed.contains(&tag);
        Ok(())
    })?;
    Ok((rest, others))
}
