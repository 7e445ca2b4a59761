//! The HTTP side: routes, checks of headers and bodies, answers. Pure functions over `http` types; the exchanges
//! themselves live in [`crate::lfs`].

pub(crate) mod answer;
pub(crate) mod auth;
pub(crate) mod cors;
pub(crate) mod error_body;
pub(crate) mod request_id;
pub(crate) mod route;
