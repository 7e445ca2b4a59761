use std::time::Duration;

use super::*;

const SETTINGS: Settings = Settings { min_part_bytes: 4, public_url: String::new() };

fn sha256(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

fn put(key: &str, body: &'static [u8]) -> Request {
    Request::PutObject { key: key.into(), body: vec![body.into()], sha256: sha256(body), content_type: None }
}

/// A store with its blobs in memory.
struct S3 {
    model: S3Model,
    blobs: MemoryBlobs,
    tokens: u64,
}

impl S3 {
    fn new() -> Self {
        let settings = Settings { public_url: "https://s3.example".into(), ..SETTINGS };
        Self { model: S3Model::with_bucket(settings), blobs: MemoryBlobs::default(), tokens: 0 }
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// Gives an input, carries blob orders out until none is left, and returns the other effects.
    fn run(&mut self, input: Input) -> Vec<Effect> {
        let mut inputs = VecDeque::from([input]);
        let mut told = Vec::new();
        while let Some(input) = inputs.pop_front() {
            let mut effects = Vec::new();
            self.model.handle_input(input, &mut effects);
            for effect in effects {
                match self.blobs.carry_out(effect) {
                    Ok(fact) => inputs.extend(fact),
                    Err(effect) => told.push(effect),
                }
            }
        }
        told
    }

    fn over(&mut self, link: Link, request: Request) -> Outcome<Response, Refusal> {
        let token = self.token();
        let mut told = self.run(Input::Requested { token, link, request });
        let Some(Effect::Finished { token: finished, reply }) = told.pop() else { panic!("{told:?}") };
        assert_eq!((finished, told.len()), (token, 0));
        reply.outcome
    }

    fn ask(&mut self, request: Request) -> Outcome<Response, Refusal> {
        self.over(Link::default(), request)
    }

    fn create_upload(&mut self, key: &str) -> String {
        let outcome =
            self.ask(Request::CreateMultipartUpload { key: key.into(), content_type: Some("text/plain".into()) });
        let Outcome::Applied(Response::UploadCreated(id)) = outcome else { panic!("{outcome:?}") };
        id
    }

    fn part(&mut self, key: &str, upload_id: &str, part_number: u16, body: &'static [u8]) -> Result<String, Refusal> {
        let (key, upload_id) = (key.into(), upload_id.into());
        let outcome = self.ask(Request::UploadPart { key, upload_id, part_number, body: vec![body.into()] });
        if let Outcome::NotApplied(refusal) = outcome {
            return Err(refusal);
        }
        let Outcome::Applied(Response::PartStored(etag)) = outcome else { panic!("{outcome:?}") };
        Ok(etag)
    }

    fn complete(&mut self, key: &str, upload_id: &str, parts: &[(u16, &str)]) -> Outcome<Response, Refusal> {
        let parts = parts.iter().map(|(number, etag)| (*number, (*etag).to_owned())).collect();
        self.ask(Request::CompleteMultipartUpload { key: key.into(), upload_id: upload_id.into(), parts })
    }

    fn open(&mut self, key: &str) -> Token {
        let token = self.token();
        let told = self.run(Input::Requested {
            token,
            link: Link::default(),
            request: Request::GetObject { key: key.into() },
        });
        assert!(matches!(&told[..], [Effect::Finished { reply: Reply { outcome: Outcome::Applied(_), .. }, .. }]));
        token
    }

    fn read(&mut self, object: Token, max_bytes: usize) -> ReadResult {
        let token = self.token();
        let mut told = self.run(Input::ReadRequested { token, object, max_bytes });
        let Some(Effect::ObjectRead { result, .. }) = told.pop() else { panic!("{told:?}") };
        result
    }

    fn content(&self, key: &str) -> Option<Bytes> {
        self.model.object(key).and_then(|object| self.blobs.content(object))
    }
}

#[test]
fn without_a_bucket_there_is_nothing() {
    let mut s3 = S3::new();
    s3.model = S3Model::new(SETTINGS);
    for request in [Request::HeadBucket, put("k", b"v"), Request::DeleteObject { key: "k".into() }] {
        assert_eq!(s3.ask(request), Outcome::NotApplied(Refusal::NoSuchBucket));
    }
    for _ in 0..2 {
        assert_eq!(s3.ask(Request::CreateBucket), Outcome::Applied(Response::Done));
    }
    assert_eq!(s3.ask(Request::HeadBucket), Outcome::Applied(Response::Done));
}

#[test]
fn an_object_is_put_replaced_read_and_deleted() {
    let mut s3 = S3::new();
    assert_eq!(s3.ask(put("k", b"first")), Outcome::Applied(Response::Done));
    assert_eq!(s3.ask(put("k", b"second one")), Outcome::Applied(Response::Done));
    assert_eq!(s3.blobs.len(), 1, "what was replaced is forgotten");
    let head = Response::Object { size: 10, content_type: None };
    assert_eq!(s3.ask(Request::HeadObject { key: "k".into() }), Outcome::Applied(head));
    let object = s3.open("k");
    assert_eq!(s3.read(object, 4), ReadResult::Chunk("seco".into()));
    assert_eq!(s3.ask(Request::DeleteObject { key: "k".into() }), Outcome::Applied(Response::Done));
    assert_eq!(s3.ask(Request::DeleteObject { key: "k".into() }), Outcome::Applied(Response::Done));
    for request in [Request::HeadObject { key: "k".into() }, Request::GetObject { key: "k".into() }] {
        assert_eq!(s3.ask(request), Outcome::NotApplied(Refusal::NoSuchKey));
    }
    assert_eq!(s3.read(object, 100), ReadResult::Chunk("nd one".into()), "an opened object outlives its key");
    assert_eq!(s3.read(object, 100), ReadResult::End);
    assert!(s3.blobs.is_empty());
    assert!(matches!(s3.read(object, 100), ReadResult::Broken(_)));
}

#[test]
fn a_body_that_is_not_what_was_signed_is_refused() {
    let mut s3 = S3::new();
    let request =
        Request::PutObject { key: "k".into(), body: vec!["a".into()], sha256: sha256(b"b"), content_type: None };
    assert_eq!(s3.ask(request), Outcome::NotApplied(Refusal::Other("XAmzContentSHA256Mismatch".into())));
    assert_eq!(s3.ask(put(&"k".repeat(1025), b"")), Outcome::NotApplied(Refusal::Other("KeyTooLongError".into())));
    assert_eq!(s3.ask(put("empty", b"")), Outcome::Applied(Response::Done));
    let object = s3.open("empty");
    assert_eq!(s3.read(object, 1), ReadResult::End);
}

#[test]
fn parts_become_an_object_in_the_listed_order() {
    let mut s3 = S3::new();
    let id = s3.create_upload("k");
    let second = s3.part("k", &id, 2, b"two").unwrap();
    s3.part("k", &id, 1, b"to be replaced").unwrap();
    let first = s3.part("k", &id, 1, b"one, ").unwrap();
    s3.part("k", &id, 3, b"not listed").unwrap();
    assert_eq!(second, "\"b8a9f715dbb64fd5c56e7783c6820a61\"");
    assert_eq!(s3.model.uploads().map(|(id, upload)| (id, upload.parts.len())).collect::<Vec<_>>(), [(id.as_str(), 3)]);
    assert_eq!(s3.complete("k", &id, &[(1, &first), (2, second.trim_matches('"'))]), Outcome::Applied(Response::Done));
    assert_eq!(s3.content("k"), Some("one, two".into()));
    assert_eq!(s3.model.object("k").unwrap().content_type.as_deref(), Some("text/plain"));
    assert_eq!((s3.model.uploads().count(), s3.blobs.len()), (0, 2));
    assert_eq!(s3.complete("k", &id, &[(1, &first)]), Outcome::NotApplied(Refusal::NoSuchUpload));
    let object = s3.open("k");
    assert_eq!(s3.read(object, 100), ReadResult::Chunk("one, ".into()));
    assert_eq!(s3.read(object, 100), ReadResult::Chunk("two".into()));
    assert_eq!(s3.read(object, 100), ReadResult::End);
}

#[test]
fn completions_that_are_refused_leave_the_upload() {
    let mut s3 = S3::new();
    let id = s3.create_upload("k");
    let long = s3.part("k", &id, 1, b"long enough").unwrap();
    let short = s3.part("k", &id, 2, b"abc").unwrap();
    s3.part("k", &id, 3, b"abc").unwrap();
    let other = |text: &str| Outcome::NotApplied(Refusal::Other(text.into()));
    for (parts, outcome) in [
        (vec![], other("MalformedXML: no parts")),
        (vec![(2, &*short), (1, &*long)], other("InvalidPartOrder")),
        (vec![(1, &*long), (1, &*long)], other("InvalidPartOrder")),
        (vec![(1, &*short)], other("InvalidPart: 1")),
        (vec![(1, &*long), (4, &*short)], other("InvalidPart: 4")),
        (vec![(1, &*long), (2, &*short), (3, &*short)], other("EntityTooSmall")),
    ] {
        assert_eq!(s3.complete("k", &id, &parts), outcome, "{parts:?}");
    }
    assert_eq!(s3.complete("another", &id, &[(1, &long)]), Outcome::NotApplied(Refusal::NoSuchUpload));
    assert_eq!(s3.complete("k", &id, &[(1, &long), (2, &short)]), Outcome::Applied(Response::Done));
}

#[test]
fn an_aborted_upload_is_gone_with_its_parts() {
    let mut s3 = S3::new();
    let id = s3.create_upload("k");
    s3.part("k", &id, 1, b"part").unwrap();
    for number in [0, 10_001] {
        assert!(matches!(s3.part("k", &id, number, b""), Err(Refusal::Other(_))));
    }
    assert_eq!(s3.part("another", &id, 1, b""), Err(Refusal::NoSuchUpload));
    let abort = |key: &str| Request::AbortMultipartUpload { key: key.into(), upload_id: id.clone() };
    let gone = Outcome::NotApplied(Refusal::NoSuchUpload);
    for (request, outcome) in
        [(abort("another"), gone.clone()), (abort("k"), Outcome::Applied(Response::Done)), (abort("k"), gone)]
    {
        assert_eq!(s3.ask(request), outcome);
    }
    assert!(s3.blobs.is_empty());
    assert_eq!(s3.part("k", &id, 1, b""), Err(Refusal::NoSuchUpload));
}

#[test]
fn an_upload_that_ends_while_a_part_is_being_stored_refuses_the_part() {
    let mut s3 = S3::new();
    let id = s3.create_upload("k");
    let (part, abort) = (s3.token(), s3.token());
    let mut effects = Vec::new();
    let request =
        Request::UploadPart { key: "k".into(), upload_id: id.clone(), part_number: 1, body: vec!["x".into()] };
    s3.model.handle_input(Input::Requested { token: part, link: Link::default(), request }, &mut effects);
    let Some(Effect::StoreBlob { blob, .. }) = effects.pop() else { panic!("{effects:?}") };
    let request = Request::AbortMultipartUpload { key: "k".into(), upload_id: id };
    s3.run(Input::Requested { token: abort, link: Link::default(), request });
    s3.model.handle_input(Input::BlobStored { blob, result: Ok(()) }, &mut effects);
    let outcome = Outcome::NotApplied(Refusal::NoSuchUpload);
    let reply = Reply { outcome, delay: Duration::ZERO };
    assert_eq!(effects, [Effect::RemoveBlob { blob }, Effect::Finished { token: part, reply }]);
}

#[test]
fn faults_tell_what_can_be_known_and_no_more() {
    #[derive(Debug, PartialEq)]
    enum Known {
        Applied,
        NotApplied,
        Unknown,
    }
    let at = |fate| Link { fate, ..Link::default() };
    let (fine, reset) = (at(Fate::Delivered), at(Fate::ReplyLost));
    for (link, trouble, put_known, put_stored, completion_known, completed) in [
        (fine, Trouble::None, Known::Applied, true, Known::Applied, true),
        (at(Fate::Refused), Trouble::None, Known::NotApplied, false, Known::NotApplied, false),
        (reset, Trouble::None, Known::Unknown, true, Known::Unknown, true),
        (at(Fate::RequestLost), Trouble::None, Known::Unknown, false, Known::Unknown, false),
        (fine, Trouble::SlowDown, Known::NotApplied, false, Known::NotApplied, false),
        (reset, Trouble::SlowDown, Known::Unknown, false, Known::Unknown, false),
        (fine, Trouble::InternalError { applied: true }, Known::Unknown, true, Known::Unknown, true),
        (fine, Trouble::InternalError { applied: false }, Known::Unknown, false, Known::Unknown, false),
        (fine, Trouble::CompletionError { applied: true }, Known::Applied, true, Known::Unknown, true),
        (fine, Trouble::CompletionError { applied: false }, Known::Applied, true, Known::Unknown, false),
        (fine, Trouble::BrokenReads, Known::Applied, true, Known::Applied, true),
        (fine, Trouble::StalledReads, Known::Applied, true, Known::Applied, true),
    ] {
        let mut s3 = S3::new();
        let upload_id = s3.create_upload("multi");
        let etag = s3.part("multi", &upload_id, 1, b"part").unwrap();
        s3.model.trouble = trouble;
        let complete = Request::CompleteMultipartUpload { key: "multi".into(), upload_id, parts: vec![(1, etag)] };
        for (request, known, key, stored) in [
            (put("single", b"body"), put_known, "single", put_stored),
            (complete, completion_known, "multi", completed),
        ] {
            let learned = match s3.over(link, request) {
                Outcome::Applied(_) => Known::Applied,
                Outcome::NotApplied(_) => Known::NotApplied,
                Outcome::Unknown(_) => Known::Unknown,
            };
            assert_eq!((learned, s3.model.object(key).is_some()), (known, stored), "{link:?} {trouble:?} {key}");
        }
    }
}

#[test]
fn an_object_whose_opening_was_not_told_is_not_held() {
    for (fate, trouble) in
        [(Fate::ReplyLost, Trouble::None), (Fate::Delivered, Trouble::InternalError { applied: true })]
    {
        let mut s3 = S3::new();
        s3.ask(put("k", b"body"));
        s3.model.trouble = trouble;
        let outcome = s3.over(Link { fate, ..Link::default() }, Request::GetObject { key: "k".into() });
        assert!(matches!(outcome, Outcome::Unknown(_)));
        s3.model.trouble = Trouble::None;
        s3.ask(Request::DeleteObject { key: "k".into() });
        assert!(s3.blobs.is_empty());
    }
}

/// As stores do that want all parts but the last of one size, and the last not larger.
#[test]
fn parts_of_unequal_sizes_are_refused_at_the_end() {
    let table: [(&[usize], bool); 6] = [
        (&[8, 8, 3], true),
        (&[8], true),
        (&[8, 8], true),
        (&[8, 6, 8, 2], false),
        (&[8, 9], false),
        (&[6, 8, 8], false),
    ];
    for (sizes, taken) in table {
        let mut s3 = S3::new();
        let upload_id = s3.create_upload("k");
        let bytes: &'static [u8] = &[7; 9];
        let etags: Vec<String> =
            (1..).zip(sizes).map(|(number, size)| s3.part("k", &upload_id, number, &bytes[..*size]).unwrap()).collect();
        let parts: Vec<(u16, &str)> = (1..).zip(&etags).map(|(number, etag)| (number, etag.as_str())).collect();
        let completed = s3.complete("k", &upload_id, &parts);
        assert_eq!(completed == Outcome::Applied(Response::Done), taken, "{sizes:?}: {completed:?}");
    }
}

#[test]
fn reads_break_or_are_given_up() {
    let mut s3 = S3::new();
    s3.ask(put("k", b"body"));
    let (broken, released) = (s3.open("k"), s3.open("k"));
    assert_eq!(s3.read(broken, 1), ReadResult::Chunk("b".into()));
    s3.model.trouble = Trouble::BrokenReads;
    assert!(matches!(s3.read(broken, 1), ReadResult::Broken(_)));
    s3.model.trouble = Trouble::None;
    assert!(matches!(s3.read(broken, 1), ReadResult::Broken(_)), "a broken stream stays broken");
    s3.run(Input::Released { object: released });
    s3.ask(Request::DeleteObject { key: "k".into() });
    assert!(s3.blobs.is_empty());
}

#[test]
fn a_read_that_gives_nothing_ends_when_its_object_is_released() {
    let mut s3 = S3::new();
    s3.ask(put("k", b"body"));
    let object = s3.open("k");
    s3.model.trouble = Trouble::StalledReads;
    let token = s3.token();
    assert_eq!(s3.run(Input::ReadRequested { token, object, max_bytes: 1 }), []);
    let told = s3.run(Input::Released { object });
    assert!(matches!(&told[..], [Effect::ObjectRead { token: of, result: ReadResult::Broken(_) }] if *of == token));
    assert_eq!(s3.run(Input::Released { object }), []);
}

/// A blob that comes when its object was released is for nobody.
#[test]
fn a_read_ends_once() {
    let mut s3 = S3::new();
    s3.ask(put("k", b"body"));
    let (object, token) = (s3.open("k"), s3.token());
    let mut effects = Vec::new();
    s3.model.handle_input(Input::ReadRequested { token, object, max_bytes: 4 }, &mut effects);
    assert!(matches!(effects[..], [Effect::LoadBlob { .. }]));
    effects.clear();
    s3.model.handle_input(Input::Released { object }, &mut effects);
    assert!(matches!(&effects[..], [Effect::ObjectRead { result: ReadResult::Broken(_), .. }]));
    effects.clear();
    s3.model.handle_input(Input::BlobLoaded { token, result: Ok("body".into()) }, &mut effects);
    assert_eq!(effects, []);
}

#[test]
fn a_blob_that_cannot_be_kept_or_loaded_is_told() {
    let mut s3 = S3::new();
    let token = s3.token();
    let mut effects = Vec::new();
    s3.model.handle_input(Input::Requested { token, link: Link::default(), request: put("k", b"body") }, &mut effects);
    let Some(Effect::StoreBlob { blob, .. }) = effects.pop() else { panic!("{effects:?}") };
    s3.model.handle_input(Input::BlobStored { blob, result: Err("no space".into()) }, &mut effects);
    let reply = Reply { outcome: Outcome::NotApplied(Refusal::Other("no space".into())), delay: Duration::ZERO };
    assert_eq!(effects, [Effect::RemoveBlob { blob }, Effect::Finished { token, reply }]);
    assert!(s3.model.object("k").is_none());
    s3.ask(put("k", b"body"));
    s3.blobs = MemoryBlobs::default();
    let object = s3.open("k");
    assert!(matches!(s3.read(object, 1), ReadResult::Broken(_)));
}

#[test]
fn a_presigned_url_names_key_and_validity() {
    let outcome = S3::new().ask(Request::PresignGetObject { key: "a/b".into(), expires_seconds: 60 });
    assert_eq!(outcome, Outcome::Applied(Response::Url("https://s3.example/a/b?X-Amz-Expires=60".into())));
}
