//! The binary from outside: `dev`, `tail`, `check-config` and how it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kafscale-proxy");

/// A running `dev` on free ports.
struct Dev {
    child: Child,
    kafka: String,
    http: String,
    folder: String,
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Dev {
    fn start() -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["dev", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // Kafka on ADDRESS, HTTP on http://ADDRESS, topic demo …, objects in FOLDER
        let line = stdout.lines().map(Result::unwrap).find(|line| line.starts_with("Kafka on ")).unwrap();
        let part = |from: &str, to: &str| {
            let rest = line.split_once(from).unwrap().1;
            if to.is_empty() { rest.to_owned() } else { rest.split_once(to).unwrap().0.to_owned() }
        };
        Self { child, kafka: part("Kafka on ", ","), http: part("http://", ","), folder: part("objects in ", "") }
    }

    fn post(&self, path: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
        (status, answer[end + 4..].to_vec())
    }

    fn tail(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM).args(["tail", "demo", "--bootstrap", &self.kafka]).args(arguments).output().unwrap()
    }
}

#[test]
fn a_file_goes_in_and_comes_back() {
    let mut dev = Dev::start();
    // More than one part, so that it takes the way through a multipart upload.
    let file: Vec<u8> = (0..12_000_000_u32).map(|index| (index % 251) as u8).collect();
    for body in [&b"small"[..], &file] {
        let (status, envelope) = dev.post("/lfs/produce", "X-Kafka-Topic: demo\r\n", body);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&envelope));
    }
    let seen = dev.tail(&["--count", "2"]);
    let records = String::from_utf8(seen.stdout).unwrap();
    assert_eq!(records.lines().filter(|line| line.starts_with("{\"kfs_lfs\":1,")).count(), 2, "{records}");

    let request = dev.tail(&["--download-body"]);
    let (status, bytes) = dev.post("/lfs/download", "Content-Type: application/json\r\n", &request.stdout);
    assert_eq!(status, 200);
    assert!(bytes == file, "{} bytes came back", bytes.len());

    let process = rustix::process::Pid::from_child(&dev.child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let started = Instant::now();
    assert!(dev.child.wait().unwrap().success());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(!std::path::Path::new(&dev.folder).exists(), "the folder is removed");
}

#[test]
fn a_wrong_setting_ends_the_start_with_code_1_and_is_named() {
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output =
            Command::new(PROGRAM).args(arguments).env_clear().envs(variables.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, error, _) = run(&[], &[("KAFSCALE_PROXY_ETCD_ENDPOINTS", "x:1"), ("KAFSCALE_PROXY_SHARDS", "many")]);
    assert_eq!(code, Some(1));
    assert!(error.contains("KAFSCALE_PROXY_SHARDS") && error.contains("many"), "{error}");
    let (code, error, _) = run(&["--etcd-endpoints", "x:1", "--backend-retries=few"], &[]);
    assert_eq!(code, Some(1));
    assert!(error.contains("--backend-retries") && error.contains("few"), "{error}");
    assert_eq!(run(&["--no-such-option"], &[]).0, Some(1));

    let secret = [("KAFSCALE_PROXY_ETCD_ENDPOINTS", "x:1"), ("KAFSCALE_PROXY_ETCD_PASSWORD", "hush")];
    let (code, error, shown) = run(&["check-config"], &secret);
    assert_eq!(code, Some(0), "{error}");
    assert!(shown.contains("KAFSCALE_PROXY_ETCD_ENDPOINTS=x:1") && !shown.contains("hush"), "{shown}");
    assert_eq!(run(&["check-config"], &[]).0, Some(1));
    let (code, _, help) = run(&["--help"], &[]);
    assert_eq!(code, Some(0));
    assert!(help.contains("[env: KAFSCALE_LFS_PROXY_S3_SIGN_PAYLOAD]"), "{help}");
}

#[test]
fn an_address_that_is_taken_ends_the_start_with_code_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(PROGRAM)
        .args(["--addr", &address, "--etcd-endpoints", "127.0.0.1:1"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains(&address));
}

/// ApiVersions version 0 over a connection; whether the answer is one.
fn asks_versions(stream: &mut TcpStream) -> bool {
    let mut head = [0; 8];
    let request = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff";
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    if stream.write_all(request).is_err() || stream.read_exact(&mut head).is_err() {
        return false;
    }
    let length = u32::from_be_bytes(head[..4].try_into().unwrap()) as usize;
    let mut rest = vec![0; length - 4];
    stream.read_exact(&mut rest).is_ok() && head[4..] == [0, 0, 0, 7] && rest[..2] == [0, 0]
}

/// A request that is answered and keeps the connection; the status of its answer, which is read whole.
fn ask_for_nothing(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = BufReader::new(stream);
    let (mut status, mut length) = (String::new(), 0);
    answer.read_line(&mut status).unwrap();
    loop {
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        match line.trim_end().to_ascii_lowercase().strip_prefix("content-length:") {
            Some(value) => length = value.trim().parse().unwrap(),
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    answer.read_exact(&mut vec![0; length]).unwrap();
    status.chars().take(12).collect()
}

#[test]
fn without_descriptors_those_who_are_here_are_served_and_the_others_again_later() {
    let limited = ["-c", "ulimit -n 96 && exec \"$0\" \"$@\"", PROGRAM];
    let mut child = Command::new("sh")
        .args(limited)
        .args(["dev", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, lines) = std::sync::mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    // Ends with the program.
    let reader =
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let find = |what: &str| {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line with {what:?}"));
            if line.contains(what) {
                return line;
            }
        }
    };
    let line = find("Kafka on ");
    let part = |from: &str| line.split_once(from).unwrap().1.split_once(',').unwrap().0.to_owned();
    let dev = Dev { child, kafka: part("Kafka on "), http: part("http://"), folder: String::new() };

    let mut early = TcpStream::connect(&dev.kafka).unwrap();
    assert!(asks_versions(&mut early));
    let mut uploader = TcpStream::connect(&dev.http).unwrap();
    let status = ask_for_nothing(&mut uploader);
    assert_eq!(status, "HTTP/1.1 404", "it is accepted before the crowd comes");
    let crowd: Vec<TcpStream> = (0..120).map(|_| TcpStream::connect(&dev.kafka).unwrap()).collect();
    find("too few descriptors are left");
    assert!(asks_versions(&mut early), "who is here is served");
    // Brokers and the store are reached for an upload.
    let upload = b"POST /lfs/produce HTTP/1.1\r\nHost: x\r\nX-Kafka-Topic: demo\r\nContent-Length: 5\r\n\r\nbytes";
    uploader.write_all(upload).unwrap();
    let mut status = [0; 12];
    uploader.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");

    drop(crowd);
    let end = Instant::now() + Duration::from_secs(30);
    while !TcpStream::connect(&dev.kafka).is_ok_and(|mut stream| asks_versions(&mut stream)) {
        assert!(Instant::now() < end, "nobody is served any more");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(dev);
    // The other end of the channel is still here, so every line could be sent.
    assert!(reader.join().unwrap().is_ok());
}
