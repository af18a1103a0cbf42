//! Standard output: text and JSON, and questions.

use crate::failure::{Done, Failure};
use crate::logging;
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write as _};

/// Asks whether to continue, unless `yes` is set.
///
/// # Errors
/// The answer is not yes, or there is no terminal to ask on.
pub fn confirmed(question: &str, yes: bool) -> Done {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(question).hint("give --yes to confirm"));
    }
    logging::put(format!("{question} Go on? [y/N] ").into_bytes());
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was changed")),
    }
}

/// Prints text. If the reader of a pipe has ended (`weir ls | head`) that is no failure.
pub fn print(text: &str) -> Done {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::from(weir_types::Error::from(e)).about("standard output"))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Done {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::new(e.to_string()))?;
    print(&(text + "\n"))
}
