//! An HTTP/1.1 client that shows everything, and one that sends half of what it promised.

use std::io;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server, asked on a new connection each time.
#[derive(Clone, Debug)]
pub struct Http {
    address: String,
}

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.text()))
    }

    /// Status and the member `code` of an error body, empty where there is none.
    pub fn code(&self) -> (u16, String) {
        let code = serde_json::from_slice::<serde_json::Value>(&self.body)
            .ok()
            .and_then(|body| Some(body.get("code")?.as_str()?.to_owned()));
        (self.status, code.unwrap_or_default())
    }
}

impl Http {
    /// The server at `host:port`.
    pub fn new(address: &str) -> Self {
        Self { address: address.to_owned() }
    }

    /// `host:port`.
    pub fn authority(&self) -> &str {
        &self.address
    }

    /// URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends a request; an error when there is no whole answer.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> io::Result<Answer> {
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", &self.address);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        connection.abort();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// Sends a request.
    ///
    /// # Panics
    /// When there is no whole answer.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let answer = self.try_send(method.clone(), path, headers, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {}: {error}", self.url(path)))
    }

    /// GET; an error when there is no whole answer.
    pub async fn try_get(&self, path: &str) -> io::Result<Answer> {
        self.try_send(Method::GET, path, &[], Bytes::new()).await
    }

    /// GET.
    ///
    /// # Panics
    /// When there is no whole answer.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    /// Begins a POST whose body of `length` bytes is sent by hand.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub async fn begin_post(&self, path: &str, headers: &[(&str, &str)], length: u64) -> Upload {
        let mut stream = TcpStream::connect(&self.address).await.expect("the server listens");
        let mut head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("the server takes a request head");
        Upload { stream }
    }
}

/// A POST under way. Dropping it closes the connection.
#[derive(Debug)]
pub struct Upload {
    stream: TcpStream,
}

impl Upload {
    /// Sends the next bytes of the body.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Everything the server says until it closes, as it came.
    pub async fn read_to_end(&mut self) -> io::Result<Bytes> {
        let mut all = Vec::new();
        self.stream.read_to_end(&mut all).await?;
        Ok(all.into())
    }

    /// Ends the connection with a reset, as a client does that crashes.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("a socket can be told to reset");
    }
}
