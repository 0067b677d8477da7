//! `monarch serve`: a folder on a local web server, for development.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use tokio::net::TcpListener;
use tower_http::services::ServeDir;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::output;

/// Sent with every answer.
///
/// The first three make pages cross-origin isolated, which gives them precise clocks. Without the
/// last one a browser may go on with the files of the previous build.
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-embedder-policy"),
        HeaderValue::from_static("require-corp"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

/// Serve a folder over HTTP with byte ranges, for development
///
/// Listens on this machine only and prints the URL to stdout. Ctrl-C ends it. Pages are
/// cross-origin isolated.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to serve
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// TCP port; 0 takes a free one
    #[arg(long, value_name = "P", default_value_t = 8080)]
    port: u16,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    ensure!(
        args.folder.is_dir(),
        "{} is not a folder",
        args.folder.display()
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(serve(&args.folder, args.port));
    // Downloads under way may be stuck reading a file; nothing is lost with them.
    runtime.shutdown_background();
    result
}

async fn serve(folder: &Path, port: u16) -> anyhow::Result<()> {
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            bail!("port {port} is in use, choose another one with --port (0 takes a free one)")
        }
        Err(error) => return Err(error).context(format!("cannot listen on port {port}")),
    };
    let url = format!("http://{}/", listener.local_addr()?);
    let announce_and_serve = async {
        output::line(url)?;
        Ok(axum::serve(listener, app(folder)).await?)
    };
    tokio::select! {
        // In this order: Ctrl-C is caught before anybody can know that the server is there.
        biased;
        result = tokio::signal::ctrl_c() => Ok(result?),
        result = announce_and_serve => result,
    }
}

/// Files of `folder`, with ranges, conditional requests and types by file name.
///
/// [`ServeDir`] refuses paths that lead out of the folder, written plainly or encoded.
fn app(folder: &Path) -> Router {
    let app = Router::new().fallback_service(ServeDir::new(folder));
    HEADERS.into_iter().fold(app, |app, (name, value)| {
        app.layer(SetResponseHeaderLayer::overriding(name, value))
    })
}
