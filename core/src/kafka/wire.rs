//! How the protocol's types look on the wire, in the classic and in the flexible encoding (KIP-482).

use bytes::{BufMut, Bytes, BytesMut};
use nom::bytes::complete::take;
use nom::multi::count;
use nom::number::complete::{be_i8, be_i16, be_i32, be_i64, be_u8};
use nom::{IResult, Input, Parser};

use super::decode::{Cursor, DecodeError, Elements, Parsed, failure};
use super::error_code::ErrorCode;
use super::string::Str;

/// Which version a message has, and with it which of the two encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Version of the message.
    pub(crate) version: i16,
    /// Compact lengths and tagged fields.
    pub(crate) flexible: bool,
}

/// A value that stands in messages.
pub(crate) trait Wire: Sized {
    /// Reads one value.
    fn read(input: Cursor<'_>, layout: Layout) -> Parsed<'_, Self>;

    /// Appends the value.
    fn write(&self, out: &mut BytesMut, layout: Layout);

    /// The first field inside that is not at its default and that this version cannot carry.
    fn lost(&self, _layout: Layout) -> Option<&'static str> {
        None
    }

    /// Some value that survives this version, drawn from test input.
    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, layout: Layout) -> Self;
}

/// Reads an unsigned LEB128 integer of at most 32 bits.
pub(crate) fn unsigned_varint<I: Input<Item = u8>>(input: I) -> IResult<I, u32, DecodeError> {
    let mut rest = input;
    let mut value = 0_u32;
    for shift in (0..32).step_by(7) {
        let (after, byte) = be_u8(rest)?;
        rest = after;
        let bits = u32::from(byte & 0x7f);
        if shift == 28 && bits > 0x0f {
            return Err(failure(DecodeError::Varint));
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok((rest, value));
        }
    }
    Err(failure(DecodeError::Varint))
}

/// Appends an unsigned LEB128 integer.
pub(crate) fn put_unsigned_varint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Reads a zig-zag LEB128 integer of at most 64 bits, as records use it.
pub(crate) fn signed_varlong<I: Input<Item = u8>>(input: I) -> IResult<I, i64, DecodeError> {
    let mut rest = input;
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (after, byte) = be_u8(rest)?;
        rest = after;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(failure(DecodeError::Varint));
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok((rest, (value >> 1) as i64 ^ -((value & 1) as i64)));
        }
    }
    Err(failure(DecodeError::Varint))
}

/// As [`signed_varlong`], of at most 32 bits.
pub(crate) fn signed_varint<I: Input<Item = u8>>(input: I) -> IResult<I, i32, DecodeError> {
    let (rest, value) = unsigned_varint(input)?;
    Ok((rest, (value >> 1) as i32 ^ -((value & 1) as i32)))
}

/// Appends a zig-zag LEB128 integer.
pub(crate) fn put_signed_varlong(out: &mut BytesMut, value: i64) {
    let mut value = (value << 1 ^ value >> 63) as u64;
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Reads the length of a string; `None` is null.
pub(crate) fn string_length<I: Input<Item = u8>>(input: I, flexible: bool) -> IResult<I, Option<usize>, DecodeError> {
    if flexible {
        return compact_length(input);
    }
    let (rest, length) = be_i16(input)?;
    Ok((rest, known_length(i32::from(length))?))
}

/// Reads the length of an array, of bytes or of records; `None` is null.
pub(crate) fn long_length<I: Input<Item = u8>>(input: I, flexible: bool) -> IResult<I, Option<usize>, DecodeError> {
    if flexible {
        return compact_length(input);
    }
    let (rest, length) = be_i32(input)?;
    Ok((rest, known_length(length)?))
}

fn compact_length<I: Input<Item = u8>>(input: I) -> IResult<I, Option<usize>, DecodeError> {
    let (rest, length) = unsigned_varint(input)?;
    Ok((rest, (length as usize).checked_sub(1)))
}

fn known_length(length: i32) -> Result<Option<usize>, nom::Err<DecodeError>> {
    match length {
        -1 => Ok(None),
        0.. => Ok(Some(length as usize)),
        ..-1 => Err(failure(DecodeError::Length)),
    }
}

fn put_string_length(out: &mut BytesMut, length: Option<usize>, flexible: bool) {
    if flexible {
        put_compact_length(out, length);
    } else {
        out.put_i16(length.map_or(-1, |length| i16::try_from(length).expect("a Str is at most i16::MAX long")));
    }
}

fn put_long_length(out: &mut BytesMut, length: Option<usize>, flexible: bool) {
    if flexible {
        put_compact_length(out, length);
    } else {
        out.put_i32(length.map_or(-1, |length| i32::try_from(length).expect("a frame is at most i32::MAX long")));
    }
}

fn put_compact_length(out: &mut BytesMut, length: Option<usize>) {
    let length = length.map_or(0, |length| u32::try_from(length).expect("a frame is at most i32::MAX long") + 1);
    put_unsigned_varint(out, length);
}

/// Walks a section of tagged fields; `field` gets each tag with its content. Tags ascend, so each comes once (KIP-482).
pub(crate) fn tagged_fields<I: Input<Item = u8>>(
    input: I,
    elements: &Elements,
    mut field: impl FnMut(u32, I) -> Result<(), DecodeError>,
) -> IResult<I, (), DecodeError> {
    let (mut rest, fields) = unsigned_varint(input)?;
    elements.take(fields as usize)?;
    let mut last = None;
    for _ in 0..fields {
        let (after, tag) = unsigned_varint(rest)?;
        if last.replace(tag).is_some_and(|last| last >= tag) {
            return Err(failure(DecodeError::TagOrder));
        }
        let (after, length) = unsigned_varint(after)?;
        let (after, content) = take(length)(after)?;
        field(tag, content).map_err(failure)?;
        rest = after;
    }
    Ok((rest, ()))
}

/// The known tagged fields of one struct, on their way out.
#[derive(Default)]
pub(crate) struct TaggedFields {
    count: u32,
    fields: BytesMut,
}

impl TaggedFields {
    /// Adds a field; tags ascend.
    pub(crate) fn put(&mut self, tag: u32, value: &impl Wire, layout: Layout) {
        let mut content = BytesMut::new();
        value.write(&mut content, layout);
        self.count += 1;
        put_unsigned_varint(&mut self.fields, tag);
        put_unsigned_varint(&mut self.fields, content.len() as u32);
        self.fields.extend_from_slice(&content);
    }

    /// Appends the section.
    pub(crate) fn finish(self, out: &mut BytesMut) {
        put_unsigned_varint(out, self.count);
        out.extend_from_slice(&self.fields);
    }
}

/// Writes a value that may be null in a version that has no null: the empty value stands for it.
pub(crate) fn write_not_null<T: Default>(value: &Option<T>, out: &mut BytesMut, layout: Layout)
where
    Option<T>: Wire,
{
    match value {
        Some(_) => value.write(out, layout),
        None => Some(T::default()).write(out, layout),
    }
}

macro_rules! integer {
    ($($type:ty, $read:ident, $put:ident;)*) => {$(
        impl Wire for $type {
            fn read(input: Cursor<'_>, _: Layout) -> Parsed<'_, Self> {
                $read(input)
            }

            fn write(&self, out: &mut BytesMut, _: Layout) {
                out.$put(*self);
            }

            #[cfg(test)]
            fn sample(draw: &mut super::tests::Draw<'_>, _: Layout) -> Self {
                draw.integer() as Self
            }
        }
    )*};
}

integer! {
    i8, be_i8, put_i8;
    i16, be_i16, put_i16;
    i32, be_i32, put_i32;
    i64, be_i64, put_i64;
}

impl Wire for bool {
    fn read(input: Cursor<'_>, _: Layout) -> Parsed<'_, Self> {
        be_u8.map(|byte| byte != 0).parse(input)
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_u8(u8::from(*self));
    }

    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, _: Layout) -> Self {
        draw.below(2) == 1
    }
}

impl Wire for ErrorCode {
    fn read(input: Cursor<'_>, _: Layout) -> Parsed<'_, Self> {
        be_i16.map(Self).parse(input)
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_i16(self.0);
    }

    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, _: Layout) -> Self {
        Self(draw.integer() as i16)
    }
}

/// A UUID.
impl Wire for [u8; 16] {
    fn read(input: Cursor<'_>, _: Layout) -> Parsed<'_, Self> {
        let (rest, bytes) = take(16_usize)(input)?;
        let mut uuid = [0; 16];
        for (to, from) in uuid.iter_mut().zip(bytes.iter_elements()) {
            *to = from;
        }
        Ok((rest, uuid))
    }

    fn write(&self, out: &mut BytesMut, _: Layout) {
        out.put_slice(self);
    }

    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, _: Layout) -> Self {
        std::array::from_fn(|_| draw.byte())
    }
}

fn not_null<T>((rest, value): (Cursor<'_>, Option<T>)) -> Parsed<'_, T> {
    value.map_or(Err(failure(DecodeError::Null)), |value| Ok((rest, value)))
}

impl Wire for Option<Str> {
    fn read(input: Cursor<'_>, layout: Layout) -> Parsed<'_, Self> {
        let (rest, length) = string_length(input, layout.flexible)?;
        let Some(length) = length else { return Ok((rest, None)) };
        let (rest, bytes) = take(length)(rest)?;
        Ok((rest, Some(Str::from_wire(bytes.to_bytes()).map_err(failure)?)))
    }

    fn write(&self, out: &mut BytesMut, layout: Layout) {
        put_string_length(out, self.as_ref().map(|text| text.len()), layout.flexible);
        out.put_slice(self.as_deref().unwrap_or_default().as_bytes());
    }

    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, layout: Layout) -> Self {
        (draw.below(3) > 0).then(|| Str::sample(draw, layout))
    }
}

impl Wire for Str {
    fn read(input: Cursor<'_>, layout: Layout) -> Parsed<'_, Self> {
        not_null(Option::read(input, layout)?)
    }

    fn write(&self, out: &mut BytesMut, layout: Layout) {
        put_string_length(out, Some(self.len()), layout.flexible);
        out.put_slice(self.as_bytes());
    }

    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, _: Layout) -> Self {
        Self::from(draw.text())
    }
}

impl Wire for Option<Bytes> {
    fn read(input: Cursor<'_>, layout: Layout) -> Parsed<'_, Self> {
        let (rest, length) = long_length(input, layout.flexible)?;
        let Some(length) = length else { return Ok((rest, None)) };
        let (rest, bytes) = take(length)(rest)?;
        Ok((rest, Some(bytes.to_bytes())))
    }

    fn write(&self, out: &mut BytesMut, layout: Layout) {
        put_long_length(out, self.as_ref().map(Bytes::len), layout.flexible);
        out.put_slice(self.as_deref().unwrap_or_default());
    }

    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, layout: Layout) -> Self {
        (draw.below(3) > 0).then(|| Bytes::sample(draw, layout))
    }
}

impl Wire for Bytes {
    fn read(input: Cursor<'_>, layout: Layout) -> Parsed<'_, Self> {
        not_null(Option::read(input, layout)?)
    }

    fn write(&self, out: &mut BytesMut, layout: Layout) {
        put_long_length(out, Some(self.len()), layout.flexible);
        out.put_slice(self);
    }

    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, _: Layout) -> Self {
        Self::from(draw.text())
    }
}

impl<T: Wire> Wire for Option<Vec<T>> {
    fn read(input: Cursor<'_>, layout: Layout) -> Parsed<'_, Self> {
        let (rest, length) = long_length(input, layout.flexible)?;
        let Some(length) = length else { return Ok((rest, None)) };
        // Every element takes at least one byte, so an announced length beyond the input is refused before any work;
        // below that, `count` reserves at most 64 KiB ahead of what has been read.
        if length > rest.input_len() {
            return Err(failure(DecodeError::Truncated));
        }
        rest.elements().take(length)?;
        count(|input| T::read(input, layout), length).map(Some).parse(rest)
    }

    fn write(&self, out: &mut BytesMut, layout: Layout) {
        match self {
            Some(elements) => elements.write(out, layout),
            None => put_long_length(out, None, layout.flexible),
        }
    }

    fn lost(&self, layout: Layout) -> Option<&'static str> {
        self.as_ref().and_then(|elements| elements.lost(layout))
    }

    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, layout: Layout) -> Self {
        (draw.below(4) > 0).then(|| Vec::sample(draw, layout))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn read(input: Cursor<'_>, layout: Layout) -> Parsed<'_, Self> {
        not_null(Option::read(input, layout)?)
    }

    fn write(&self, out: &mut BytesMut, layout: Layout) {
        put_long_length(out, Some(self.len()), layout.flexible);
        for element in self {
            element.write(out, layout);
        }
    }

    fn lost(&self, layout: Layout) -> Option<&'static str> {
        self.iter().find_map(|element| element.lost(layout))
    }

    #[cfg(test)]
    fn sample(draw: &mut super::tests::Draw<'_>, layout: Layout) -> Self {
        (0..draw.below(4)).map(|_| T::sample(draw, layout)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_varints() {
        let cases: [(u32, &[u8]); 6] = [
            (0, &[0]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (16_383, &[0xff, 0x7f]),
            (16_384, &[0x80, 0x80, 1]),
            (u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (value, bytes) in cases {
            let mut out = BytesMut::new();
            put_unsigned_varint(&mut out, value);
            assert_eq!(&out[..], bytes);
            assert_eq!(unsigned_varint(bytes), Ok((&[][..], value)));
        }
    }

    #[test]
    fn signed_varints() {
        let cases: [(i64, &[u8]); 7] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ];
        for (value, bytes) in cases {
            let mut out = BytesMut::new();
            put_signed_varlong(&mut out, value);
            assert_eq!(&out[..], bytes);
            assert_eq!(signed_varlong(bytes), Ok((&[][..], value)));
            if let Ok(value) = i32::try_from(value) {
                assert_eq!(signed_varint(bytes), Ok((&[][..], value)));
            }
        }
    }

    #[test]
    fn varints_of_too_many_bits_are_refused() {
        let too_long = Err(failure(DecodeError::Varint));
        assert_eq!(unsigned_varint(&[0xff, 0xff, 0xff, 0xff, 0x1f][..]), too_long);
        assert_eq!(unsigned_varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0][..]), too_long);
        let too_long = Err(failure(DecodeError::Varint));
        assert_eq!(signed_varlong(&[0xff; 11][..]), too_long);
        assert_eq!(
            signed_varlong(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2][..]),
            Err(failure(DecodeError::Varint))
        );
    }
}
