//! Where things are, and commands that find the project's own tools first.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The checkout.
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The workspace this program was built from.
    pub(crate) fn find() -> Self {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = xtask
            .parent()
            .expect("xtask is a folder of the workspace")
            .to_path_buf();
        Self { root }
    }

    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// Tools that `setup` built. Not under `CARGO_TARGET_DIR`: all target directories share them.
    pub(crate) fn tools(&self) -> PathBuf {
        self.path("target/tools")
    }

    /// A command in the root, with the project's tools first on `PATH`.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .env("PATH", self.search_path());
        if env::var_os("CI").is_some() {
            // Incremental files are written for a next build that a clean machine never makes.
            command.env("CARGO_INCREMENTAL", "0");
        }
        command
    }

    /// Cargo as the toolchain file chooses it.
    pub(crate) fn cargo(&self) -> Command {
        self.cargo_like("cargo")
    }

    /// A program that runs cargo itself.
    pub(crate) fn cargo_like(&self, program: &str) -> Command {
        let mut command = self.command(program);
        // `cargo run` hands its own settings down; a nested cargo starts from the files again.
        for inherited in [
            "CARGO",
            "CARGO_MANIFEST_DIR",
            "CARGO_MANIFEST_PATH",
            "RUSTUP_TOOLCHAIN",
        ] {
            command.env_remove(inherited);
        }
        command
    }

    pub(crate) fn node(&self) -> Command {
        self.command("node")
    }

    fn search_path(&self) -> OsString {
        let own = [self.tools().join("bin"), self.path("node_modules/.bin")];
        let inherited = env::var_os("PATH").unwrap_or_default();
        env::join_paths(own.into_iter().chain(env::split_paths(&inherited)))
            .unwrap_or_else(|_| inherited.clone())
    }
}
