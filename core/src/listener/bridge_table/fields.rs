//! The fields of a message of the independent codec, by their paths.

use std::fmt::Debug;

/// A field: its path without the places in lists, and its value as text. An empty list is a value, too.
pub(super) type Field = (String, String);

/// All fields, in order. `Debug` is the one description of its messages that the independent codec offers.
pub(super) fn fields(message: &impl Debug) -> Vec<Field> {
    let text = format!("{message:#?}");
    let mut fields = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if line.starts_with(['}', ']', ')']) {
            open.pop();
            continue;
        }
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let (name, value) = line.split_once(": ").filter(|(name, _)| is_name(name)).unwrap_or(("", line));
        if value.ends_with(['{', '[', '(']) {
            open.push(name);
        } else {
            let path: Vec<&str> = open.iter().copied().chain([name]).filter(|name| !name.is_empty()).collect();
            fields.push((path.join("."), value.trim_end_matches(',').to_owned()));
        }
    }
    fields
}

/// The values that stand under this path, in order.
pub(super) fn values<'a>(fields: &'a [Field], path: &str) -> Vec<&'a str> {
    fields.iter().filter(|(found, _)| found == path).map(|(_, value)| value.as_str()).collect()
}

#[test]
fn fields_have_paths() {
    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct Inner {
        name: Option<&'static str>,
        list: Vec<i32>,
    }
    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct Outer {
        inner: Vec<Inner>,
        number: i16,
    }
    let inner = vec![Inner { name: Some("a: {"), list: vec![] }, Inner { name: None, list: vec![1, 2] }];
    let found = fields(&Outer { inner, number: -1 });
    let expected = [
        ("inner.name", "\"a: {\""),
        ("inner.list", "[]"),
        ("inner.name", "None"),
        ("inner.list", "1"),
        ("inner.list", "2"),
        ("number", "-1"),
    ];
    assert_eq!(found, expected.map(|(path, value)| (path.to_owned(), value.to_owned())));
    assert_eq!(values(&found, "inner.list"), ["[]", "1", "2"]);
}
