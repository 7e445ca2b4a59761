//! Request and response headers, and whole frames made of them.

use bytes::{BufMut, Bytes, BytesMut};
use nom::Parser;
use nom::bytes::complete::take;
use nom::number::complete::{be_i16, be_i32};
use nom::{IResult, Input};

use super::api::ApiKey;
use super::decode::{DecodeError, Elements, failure, prefix};
use super::frame::{LENGTH_PREFIX, payload};
use super::message::{Message, Request};
use super::string::Str;
use super::wire::{string_length, tagged_fields};

/// What stands before every request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader<'a> {
    /// API key, which may be unknown: see [`RequestHeader::api`].
    pub api_key: i16,
    /// Version of the request.
    pub api_version: i16,
    /// Comes back in the response.
    pub correlation_id: i32,
    /// Name that the client gives itself; brokers may use it as a principal, so null stays null.
    pub client_id: Option<&'a str>,
}

impl<'a> RequestHeader<'a> {
    /// Reads the header of a frame (length prefix included) and tells at which index of the frame the body begins.
    ///
    /// The tagged fields of a flexible header are skipped. Where the version is not known, they are left in the body,
    /// for a later protocol may lay them out differently.
    pub fn decode(frame: &'a [u8]) -> Result<(Self, usize), DecodeError> {
        let (body, header) = prefix(payload(frame), Self::parse)?;
        Ok((header, frame.len() - body.len()))
    }

    /// The client id of a frame (length prefix included), without a look at what is behind it.
    pub(crate) fn client_id(frame: &'a [u8]) -> Option<&'a str> {
        prefix(payload(frame), Self::parse_fixed).ok().and_then(|(_, header)| header.client_id)
    }

    fn parse_fixed(input: &'a [u8]) -> IResult<&'a [u8], Self, DecodeError> {
        let (rest, (api_key, api_version, correlation_id)) = (be_i16, be_i16, be_i32).parse(input)?;
        let (rest, length) = string_length(rest, false)?;
        let (rest, client_id) = match length {
            None => (rest, None),
            Some(length) => {
                let (rest, bytes) = take(length)(rest)?;
                (rest, Some(std::str::from_utf8(bytes).map_err(|_| failure(DecodeError::Utf8))?))
            }
        };
        Ok((rest, Self { api_key, api_version, correlation_id, client_id }))
    }

    fn parse(input: &'a [u8]) -> IResult<&'a [u8], Self, DecodeError> {
        let (mut rest, header) = Self::parse_fixed(input)?;
        if let Some(api) = header.api()
            && api.known_versions().contains(header.api_version)
            && api.is_flexible(header.api_version)
        {
            (rest, ()) = tagged_fields(rest, &Elements::new(), |_, _| Ok(()))?;
        }
        Ok((rest, header))
    }

    /// The API, if it is known here.
    pub fn api(&self) -> Option<ApiKey> {
        ApiKey::from_key(self.api_key)
    }

    /// Appends the header; no tagged fields are written. A client id is cut to [`Str::MAX_LEN`] bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_i16(self.api_key);
        out.put_i16(self.api_version);
        out.put_i32(self.correlation_id);
        match self.client_id {
            None => out.put_i16(-1),
            Some(client_id) => {
                let client_id = &client_id[..client_id.floor_char_boundary(Str::MAX_LEN)];
                out.put_i16(client_id.len() as i16);
                out.put_slice(client_id.as_bytes());
            }
        }
        if self.api().is_some_and(|api| api.is_flexible(self.api_version)) {
            out.put_u8(0);
        }
    }
}

/// What stands before every response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The one of the request.
    pub correlation_id: i32,
}

impl ResponseHeader {
    /// The correlation id of a frame (length prefix included), which has to be known before the rest can be read.
    pub fn correlation_id(frame: &[u8]) -> Result<i32, DecodeError> {
        Ok(prefix(payload(frame), be_i32)?.1)
    }

    /// Reads the header of a frame (length prefix included) and tells at which index of the frame the body begins.
    pub fn decode(frame: &[u8], api: ApiKey, version: i16) -> Result<(Self, usize), DecodeError> {
        let (body, header) = prefix(payload(frame), |input| Self::parse(input, api, version))?;
        Ok((header, frame.len() - body.len()))
    }

    fn parse<I: Input<Item = u8>>(input: I, api: ApiKey, version: i16) -> IResult<I, Self, DecodeError> {
        let (mut rest, correlation_id) = be_i32(input)?;
        if Self::is_flexible(api, version) {
            (rest, ()) = tagged_fields(rest, &Elements::new(), |_, _| Ok(()))?;
        }
        Ok((rest, Self { correlation_id }))
    }

    /// Appends the header; no tagged fields are written.
    pub fn encode(&self, api: ApiKey, version: i16, out: &mut BytesMut) {
        out.put_i32(self.correlation_id);
        if Self::is_flexible(api, version) {
            out.put_u8(0);
        }
    }

    // A client asks for ApiVersions before it knows what the broker speaks, so its header never changes (KIP-511).
    fn is_flexible(api: ApiKey, version: i16) -> bool {
        api != ApiKey::ApiVersions && api.is_flexible(version)
    }
}

/// What no frame can hold: its length would be above `i32::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTooLong;

/// A whole request frame, length prefix included.
///
/// # Panics
/// When the version is not one of [`ApiKey::known_versions`].
pub fn request_frame<R: Request>(correlation_id: i32, client_id: Option<&str>, version: i16, request: &R) -> Bytes {
    let header = RequestHeader { api_key: R::KEY.into(), api_version: version, correlation_id, client_id };
    let frame = frame(LONGEST, |out| {
        header.encode(out);
        request.encode(version, out);
    });
    frame.expect(
        "a request is at most as long as the longest that is accepted, which is far below what a frame can hold",
    )
}

/// A whole response frame, length prefix included, of what one request or one broker's answer has brought. What is merged
/// of several answers may be too long for a frame: see [`merged_response_frame`].
///
/// # Panics
/// When the version is not one of [`ApiKey::known_versions`].
pub fn response_frame<M: Message>(correlation_id: i32, version: i16, response: &M) -> Bytes {
    let frame = merged_response_frame(correlation_id, version, response);
    frame.expect("one frame is not twice as long in another version, and the longest that is accepted is 1 GiB")
}

/// As [`response_frame`], of any length.
///
/// # Panics
/// When the version is not one of [`ApiKey::known_versions`].
pub fn merged_response_frame<M: Message>(
    correlation_id: i32,
    version: i16,
    response: &M,
) -> Result<Bytes, FrameTooLong> {
    frame(LONGEST, |out| {
        ResponseHeader { correlation_id }.encode(M::KEY, version, out);
        response.encode(version, out);
    })
}

/// Longest frame, without its length prefix.
const LONGEST: usize = i32::MAX as usize;

fn frame(longest: usize, write: impl FnOnce(&mut BytesMut)) -> Result<Bytes, FrameTooLong> {
    let mut out = BytesMut::with_capacity(256);
    out.put_i32(0);
    write(&mut out);
    let length = out.len() - LENGTH_PREFIX;
    let length = i32::try_from(length).ok().filter(|_| length <= longest).ok_or(FrameTooLong)?;
    out[..LENGTH_PREFIX].copy_from_slice(&length.to_be_bytes());
    Ok(out.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::{FetchRequest, FetchResponse, ProduceRequest};

    #[test]
    fn request_headers_lead_to_the_body() {
        for client_id in [None, Some(""), Some("rdkafka")] {
            for version in [8, 9] {
                let request = ProduceRequest { acks: 1, ..ProduceRequest::default() };
                let frame = request_frame(7, client_id, version, &request);
                let (header, body) = RequestHeader::decode(&frame).unwrap();
                assert_eq!(header, RequestHeader { api_key: 0, api_version: version, correlation_id: 7, client_id });
                assert_eq!(ProduceRequest::decode(&frame.slice(body..), version), Ok(request));
            }
        }
    }

    #[test]
    fn response_headers_lead_to_the_body() {
        for version in [11, 12] {
            let response = FetchResponse { session_id: 3, ..FetchResponse::default() };
            let frame = response_frame(-9, version, &response);
            assert_eq!(ResponseHeader::correlation_id(&frame), Ok(-9));
            let (header, body) = ResponseHeader::decode(&frame, ApiKey::Fetch, version).unwrap();
            assert_eq!(header.correlation_id, -9);
            assert_eq!(FetchResponse::decode(&frame.slice(body..), version), Ok(response));
        }
    }

    #[test]
    fn unknown_tags_of_a_header_are_skipped() {
        let plain = request_frame(1, Some("c"), 12, &FetchRequest::default());
        let (_, body) = RequestHeader::decode(&plain).unwrap();
        let mut tagged = BytesMut::from(&plain[..body - 1]);
        tagged.put_slice(&[1, 5, 2, 0xaa, 0xbb]);
        tagged.put_slice(&plain[body..]);
        let (header, body) = RequestHeader::decode(&tagged).unwrap();
        assert_eq!(header.client_id, Some("c"));
        assert_eq!(FetchRequest::decode(&tagged.freeze().slice(body..), 12), Ok(FetchRequest::default()));
    }

    #[test]
    fn what_no_frame_can_hold_is_said() {
        let content = |length| move |out: &mut BytesMut| out.put_bytes(7, length);
        assert_eq!(frame(5, content(5)), Ok(Bytes::from_static(&[0, 0, 0, 5, 7, 7, 7, 7, 7])));
        assert_eq!(frame(5, content(6)), Err(FrameTooLong));
    }

    #[test]
    fn the_tags_of_a_header_are_counted_and_ascend() {
        let header = |tags: &[u8]| {
            let mut frame = BytesMut::from(&[0, 0, 0, 0, 0, 12, 0, 4, 0, 0, 0, 1, 0, 1, b'c'][..]);
            frame.put_slice(tags);
            frame.put_slice(b"body");
            frame
        };
        let mut too_many = BytesMut::new();
        // 2^20 + 1 fields of two bytes, as a varint.
        too_many.put_slice(&[0x81, 0x80, 0x40]);
        too_many.put_bytes(0, 2 * (1 << 20) + 2);
        for (tags, error) in [
            (&[2, 0, 0, 7, 1, 9][..], None),
            (&[2, 7, 0, 0, 0], Some(DecodeError::TagOrder)),
            (&[2, 7, 0, 7, 0], Some(DecodeError::TagOrder)),
            (&too_many, Some(DecodeError::TooMany)),
        ] {
            let frame = header(tags);
            assert_eq!(RequestHeader::decode(&frame).err(), error);
            assert_eq!(RequestHeader::client_id(&frame), Some("c"), "whatever follows");
        }
    }

    #[test]
    fn every_cut_of_a_header_is_an_error() {
        let frame = request_frame(1, Some("client"), 12, &FetchRequest::default());
        let (_, body) = RequestHeader::decode(&frame).unwrap();
        for end in 0..body {
            assert_eq!(RequestHeader::decode(&frame[..end]), Err(DecodeError::Truncated));
        }
    }

    #[test]
    fn a_version_from_the_future_still_has_a_header() {
        let frame = [0, 0, 0, 12, 0, 1, 0, 127, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff];
        let (header, body) = RequestHeader::decode(&frame).unwrap();
        assert_eq!((header.api_version, header.correlation_id, header.client_id, body), (127, 5, None, 14));
    }
}
