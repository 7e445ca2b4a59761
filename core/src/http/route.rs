//! Which endpoint a request is for.

use http::Method;

/// What a request to the LFS API asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `POST /lfs/produce`.
    Produce,
    /// `POST /lfs/download`.
    Download,
    /// A CORS preflight below `/lfs/`: answered before authentication.
    Preflight,
    /// A fixed path with another method.
    MethodNotAllowed,
    /// Below `/lfs/uploads`: multipart sessions are not served, every call answers 404 `not_found`.
    NoUploads,
    /// Nothing of ours.
    NotFound,
}

impl Route {
    /// Finds the endpoint. Paths are compared as sent: nothing in them needs percent-encoding.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let endpoint = match path {
            "/lfs/produce" => Self::Produce,
            "/lfs/download" => Self::Download,
            "/lfs/uploads" => Self::NoUploads,
            _ if path.starts_with("/lfs/uploads/") => Self::NoUploads,
            _ => return Self::NotFound,
        };
        match *method {
            Method::OPTIONS => Self::Preflight,
            Method::POST => endpoint,
            _ if path == "/lfs/uploads" || endpoint != Self::NoUploads => Self::MethodNotAllowed,
            _ => endpoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let table = [
            ("POST", "/lfs/produce", Route::Produce),
            ("GET", "/lfs/produce", Route::MethodNotAllowed),
            ("HEAD", "/lfs/download", Route::MethodNotAllowed),
            ("POST", "/lfs/download", Route::Download),
            ("OPTIONS", "/lfs/produce", Route::Preflight),
            ("OPTIONS", "/lfs/uploads/1/parts/2", Route::Preflight),
            ("POST", "/lfs/uploads", Route::NoUploads),
            ("PUT", "/lfs/uploads", Route::MethodNotAllowed),
            ("PUT", "/lfs/uploads/1/parts/2", Route::NoUploads),
            ("DELETE", "/lfs/uploads/", Route::NoUploads),
            ("POST", "/lfs/produce/", Route::NotFound),
            ("OPTIONS", "/lfs/other", Route::NotFound),
            ("POST", "/", Route::NotFound),
            ("POST", "/lfs/uploadsX", Route::NotFound),
        ];
        for (method, path, expected) in table {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(Route::of(&method, path), expected, "{method} {path}");
        }
    }
}
