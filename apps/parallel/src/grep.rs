//! Lines with a fixed text, sorted: `grep -F TEXT FILE... | LC_ALL=C sort`, by all processes of a
//! job.

use crate::invalid;
use crate::merge::{Ends, Output, merge};
use crate::options::Run;
use crate::report::Report;
use crate::sink::Sink;
use weir_types::Result;

/// Parameters of a search.
pub struct Question {
    /// The text to find.
    pub text: Vec<u8>,
    /// Whether to print only the number of lines.
    pub count: bool,
}

/// Finds the lines in all inputs. The first process writes them to the output or to standard
/// output. Returns their total number.
///
/// # Errors
/// Those of the files, and of other processes; lines that do not fit the memory.
pub fn grep(run: &Run, question: &Question, report: &mut Report) -> Result<u64> {
    if question.text.is_empty() || question.text.contains(&b'\n') {
        return Err(invalid("the text to look for is empty or has a newline"));
    }
    let finder = memchr::memmem::Finder::new(&question.text);
    let (mut lines, mut held, mut found) = (Vec::<Vec<u8>>::new(), 0, 0u64);
    let totals = run.inputs.read(&run.job, &mut |block| {
        let mut from = 0;
        while let Some(at) = finder.find(&block[from..]).map(|at| from + at) {
            let begin = memchr::memrchr(b'\n', &block[..at]).map_or(0, |at| at + 1);
            let end = memchr::memchr(b'\n', &block[at..]).map_or(block.len(), |n| at + n + 1);
            found += 1;
            if !question.count {
                held += end - begin + size_of::<Vec<u8>>();
                if held > run.memory_bytes {
                    let what = "more lines than fit in --memory: ask for --count, look for a \
                                rarer text, or give more memory";
                    return Err(invalid(what));
                }
                lines.push(block[begin..end].to_vec());
            }
            from = end;
        }
        Ok(())
    })?;
    report.read(totals);
    report.phase("read");
    report.count("lines", found);
    if !question.count && run.job.ranks > 1 {
        lines.sort_unstable();
        let path = run.job.path(&format!("lines.{}", run.job.rank));
        let mut out = Output::create(&run.tree, &path)?;
        lines.iter().try_for_each(|line| out.add(line))?;
        out.finish()?;
    }
    let told = run.job.exchange("found", &found.to_le_bytes())?;
    let number = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
    let all: u64 = told.iter().map(number).sum();
    if run.job.rank == 0 {
        let mut result = Sink::open(run)?;
        if question.count {
            result.add(format!("{all}\n").as_bytes())?;
        } else if run.job.ranks == 1 {
            lines.sort_unstable();
            lines.iter().try_for_each(|line| result.add(line))?;
        } else {
            let paths: Vec<String> =
                (0..run.job.ranks).map(|rank| run.job.path(&format!("lines.{rank}"))).collect();
            merge(&run.tree, (&paths, Ends::Line), run.memory_bytes, &mut |l| result.add(l))?;
        }
        result.finish()?;
    }
    report.phase("merge and write");
    Ok(all)
}
