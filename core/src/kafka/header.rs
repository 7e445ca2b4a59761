//! Request and response headers, and whole frames made of them.

use bytes::{BufMut, Bytes, BytesMut};
use nom::Parser;
use nom::bytes::complete::take;
use nom::number::complete::{be_i16, be_i32};
use nom::{IResult, Input};

use super::api::ApiKey;
use super::decode::{DecodeError, failure, prefix};
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

    fn parse(input: &'a [u8]) -> IResult<&'a [u8], Self, DecodeError> {
        let (rest, (api_key, api_version, correlation_id)) = (be_i16, be_i16, be_i32).parse(input)?;
        let (rest, length) = string_length(rest, false)?;
        let (mut rest, client_id) = match length {
            None => (rest, None),
            Some(length) => {
                let (rest, bytes) = take(length)(rest)?;
                (rest, Some(std::str::from_utf8(bytes).map_err(|_| failure(DecodeError::Utf8))?))
            }
        };
        let header = Self { api_key, api_version, correlation_id, client_id };
        if let Some(api) = header.api()
            && api.known_versions().contains(api_version)
            && api.is_flexible(api_version)
        {
            (rest, ()) = tagged_fields(rest, |_, _| Ok(()))?;
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
            (rest, ()) = tagged_fields(rest, |_, _| Ok(()))?;
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

/// A whole request frame, length prefix included.
///
/// # Panics
/// When the version is not one of [`ApiKey::known_versions`].
pub fn request_frame<R: Request>(correlation_id: i32, client_id: Option<&str>, version: i16, request: &R) -> Bytes {
    let header = RequestHeader { api_key: R::KEY.into(), api_version: version, correlation_id, client_id };
    frame(|out| {
        header.encode(out);
        request.encode(version, out);
    })
}

/// A whole response frame, length prefix included.
///
/// # Panics
/// When the version is not one of [`ApiKey::known_versions`].
pub fn response_frame<M: Message>(correlation_id: i32, version: i16, response: &M) -> Bytes {
    frame(|out| {
        ResponseHeader { correlation_id }.encode(M::KEY, version, out);
        response.encode(version, out);
    })
}

fn frame(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    out.put_i32(0);
    write(&mut out);
    let length = i32::try_from(out.len() - LENGTH_PREFIX).expect("a frame is made of frames that were below 2 GiB");
    out[..LENGTH_PREFIX].copy_from_slice(&length.to_be_bytes());
    out.freeze()
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
