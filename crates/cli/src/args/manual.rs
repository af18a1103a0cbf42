//! Command lines of the commands that write completions and manual pages.

use clap::{Args, ValueHint};
use clap_complete::Shell;
use std::path::PathBuf;

/// Print the completions of this command line for a shell
#[derive(Args)]
#[command(
    after_help = "bash: weir completions bash > ~/.local/share/bash-completion/completions/weir\n\
    zsh:  weir completions zsh > DIR/_weir, with DIR in $fpath\n\
    fish: weir completions fish > ~/.config/fish/completions/weir.fish"
)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// Write a manual page for each command
#[derive(Args)]
#[command(after_help = "After weir man ~/.local/share/man, man finds the pages: man weir, man \
    weir-mount")]
pub struct Man {
    /// Directory of the manual pages, which contains man1 and man8; it is made if it is missing
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}
