//! As much of HTTP/1.1 as the loads and the store need: heads, bodies of known length, and chunked answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::failure::{During, Failure};

const READ_AT_ONCE: usize = 256 * 1024;
const LONGEST_LINE: u64 = 64 * 1024;
const MOST_FIELDS: usize = 100;
const LONGEST_ANSWER: u64 = 16 * 1024 * 1024;
/// Nothing that is measured takes so long between two bytes.
const SILENCE: Duration = Duration::from_secs(120);

/// First line and header fields of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Request line or status line.
    pub(crate) line: String,
    fields: Vec<(String, String)>,
}

impl Head {
    /// Value of a field; its name is given in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Length of the body, from the given field.
    pub(crate) fn length(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }
}

/// Reads messages from a connection.
#[derive(Debug)]
pub(crate) struct Messages<R>(BufReader<R>);

impl<R: Read> Messages<R> {
    /// From where the connection stands.
    pub(crate) fn of(connection: R) -> Self {
        Self(BufReader::with_capacity(READ_AT_ONCE, connection))
    }

    /// The next head; `None` when the peer has closed before it.
    pub(crate) fn head(&mut self) -> io::Result<Option<Head>> {
        let Some(first) = self.line()? else { return Ok(None) };
        let mut head = Head { line: first, fields: Vec::new() };
        loop {
            let field = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if field.is_empty() {
                return Ok(Some(head));
            }
            if head.fields.len() == MOST_FIELDS {
                return Err(io::Error::other("a head that does not end"));
            }
            let (name, value) = field.split_once(':').ok_or_else(|| io::Error::other("a field without a colon"))?;
            head.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// Reads a body and drops it.
    pub(crate) fn skip(&mut self, mut length: u64) -> io::Result<()> {
        while length > 0 {
            let read = self.0.fill_buf()?.len() as u64;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = read.min(length);
            self.0.consume(taken as usize);
            length -= taken;
        }
        Ok(())
    }

    /// Reads the body that belongs to the head of an answer.
    fn body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if head.field("transfer-encoding") != Some("chunked") {
            self.append(&mut body, head.length("content-length").unwrap_or(0))?;
            return Ok(body);
        }
        loop {
            let size = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let size = u64::from_str_radix(size.split(';').next().unwrap_or_default(), 16).map_err(io::Error::other)?;
            self.append(&mut body, size)?;
            // Behind a chunk there is the end of its line, behind the last one the empty line of the trailer.
            if self.line()?.as_deref() != Some("") {
                return Err(io::Error::other("a chunk that does not end"));
            }
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn append(&mut self, body: &mut Vec<u8>, length: u64) -> io::Result<()> {
        if body.len() as u64 + length > LONGEST_ANSWER {
            return Err(io::Error::other("an answer that is too long"));
        }
        match (&mut self.0).take(length).read_to_end(body)? as u64 == length {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The next line without its end; `None` when the peer has closed before it.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let read = (&mut self.0).take(LONGEST_LINE).read_line(&mut line)?;
        match line.strip_suffix('\n') {
            Some(line) => Ok(Some(line.trim_end_matches('\r').to_owned())),
            None if read == 0 => Ok(None),
            None => Err(io::Error::other("a line that does not end")),
        }
    }
}

/// What a request carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many bytes, cut from this block again and again.
    Repeated(&'a [u8], u64),
}

impl Body<'_> {
    fn length(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Repeated(_, length) => length,
        }
    }

    fn write(self, mut to: impl Write) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => to.write_all(bytes),
            Self::Repeated(block, mut left) => {
                while left > 0 {
                    let piece = left.min(block.len() as u64);
                    to.write_all(&block[..piece as usize])?;
                    left -= piece;
                }
                Ok(())
            }
        }
    }
}

/// A client on one connection, which it keeps.
#[derive(Debug)]
pub(crate) struct HttpClient {
    address: SocketAddr,
    stream: TcpStream,
    answers: Messages<TcpStream>,
}

impl HttpClient {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let open = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(SILENCE))?;
            stream.set_write_timeout(Some(SILENCE))?;
            let answers = Messages::of(stream.try_clone()?);
            Ok::<_, io::Error>(Self { address, stream, answers })
        };
        open().during(|| format!("connecting to {address}"))
    }

    /// Sends a request and waits for its answer, which must have status 200.
    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &str, body: Body<'_>) -> Result<Vec<u8>, Failure> {
        let what = || format!("{method} http://{}{path}", self.address);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{fields}Content-Length: {}\r\n\r\n",
            self.address,
            body.length()
        );
        self.stream.write_all(head.as_bytes()).during(what)?;
        body.write(&self.stream).during(what)?;
        let head = self.answers.head().during(what)?.ok_or_else(|| Failure::new(format!("{}: closed", what())))?;
        let answer = self.answers.body(&head).during(what)?;
        if head.line.split(' ').nth(1) == Some("200") {
            return Ok(answer);
        }
        Err(Failure::new(format!("{}: {} {}", what(), head.line, String::from_utf8_lossy(&answer))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_each_other() {
        let mut messages = Messages::of(
            &b"PUT /b HTTP/1.1\r\nContent-Length: 3\r\nETag: \"a:b\"\r\n\r\nxyzGET / HTTP/1.1\r\n\r\n"[..],
        );
        let head = messages.head().expect("a head").expect("not the end");
        assert_eq!(head.line, "PUT /b HTTP/1.1");
        assert_eq!((head.length("content-length"), head.field("etag")), (Some(3), Some("\"a:b\"")));
        messages.skip(3).expect("a whole body");
        assert_eq!(messages.head().expect("a head").expect("not the end").line, "GET / HTTP/1.1");
        assert_eq!(messages.head().expect("a clean end"), None);
    }

    #[test]
    fn what_is_cut_is_an_error() {
        for cut in ["GET / HTTP/1.1\r\nA: b", "GET / HT", "GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET / HTTP/1.1\r\n"] {
            assert!(Messages::of(cut.as_bytes()).head().is_err(), "{cut}");
        }
        assert!(Messages::of(&b"xy"[..]).skip(3).is_err());
        for cut in ["Content-Length: 3\r\n\r\nxy", "Transfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n"] {
            assert!(answer(&format!("HTTP/1.1 200 OK\r\n{cut}")).is_err(), "{cut}");
        }
    }

    fn answer(message: &str) -> io::Result<Vec<u8>> {
        let mut messages = Messages::of(message.as_bytes());
        let head = messages.head()?.expect("not the end");
        messages.body(&head)
    }

    #[test]
    fn answers_have_a_length_or_chunks() {
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(answer(chunked).expect("whole"), b"abc0123456789");
        assert_eq!(answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc").expect("whole"), b"ab");
        assert_eq!(answer("HTTP/1.1 204 No Content\r\n\r\n").expect("whole"), b"");
    }

    #[test]
    fn a_repeated_body_has_the_announced_length() {
        let mut written = Vec::new();
        let body = Body::Repeated(b"abc", 7);
        body.write(&mut written).expect("memory takes everything");
        assert_eq!((written.as_slice(), body.length()), (&b"abcabca"[..], 7));
    }
}
