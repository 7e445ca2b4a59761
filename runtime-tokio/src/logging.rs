//! Log lines: text on standard output, `key=value`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// What the libraries below us may say at the usual level: their own troubles come back as outcomes and are logged by us.
const LIBRARIES: &str = "aws_config=warn,aws_sdk_s3=warn,hyper=warn,hyper_util=warn,h2=warn,tonic=warn,tower=warn";

/// Starts logging with a filter such as `info` or `info,kafscale_proxy_core=debug`.
///
/// # Errors
/// The filter cannot be understood.
pub fn start(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::builder().parse(format!("{LIBRARIES},{filter}")).map_err(|error| error.to_string())?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stdout().is_terminal())
        .with_target(false)
        .try_init()
        .map_err(|error| error.to_string())
}
