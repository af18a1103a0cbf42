//! Many ranges in one call: small ranges of a file are combined into one request to each server,
//! large ones are cut, and all requests run in parallel.

use crate::parallel::in_parallel;
use weir_client::{Context, File};
use weir_layout::{Region, RegionList};
use weir_types::limits::{MAX_FILE_BYTES, MAX_PAYLOAD_BYTES, MAX_REGIONS};
use weir_types::{Error, ErrorKind, Result};

/// Ranges up to this size are combined.
const SMALL_BYTES: usize = 64 << 10;
/// Maximum bytes of combined ranges; further ones are for another thread.
const TOGETHER_BYTES: usize = 1 << 20;

/// A range of a file, and its buffer. It is within the file.
pub(crate) struct Want<'a> {
    /// Index among the caller's ranges.
    pub(crate) range: usize,
    pub(crate) file: &'a File,
    pub(crate) offset: u64,
    pub(crate) dest: &'a mut [u8],
}

/// A call of one thread: parts of one file; several only if they are small.
type Call<'a> = Vec<Want<'a>>;

/// Reads all ranges. The result of each is the number of bytes read from its beginning, fewer than
/// asked for only if the file was truncated meanwhile.
pub(crate) fn read(
    ctx: &Context,
    wants: Vec<Want<'_>>,
    ranges: usize,
    threads: usize,
) -> Vec<Result<usize>> {
    let mut results: Vec<Result<usize>> = (0..ranges).map(|_| Ok(0)).collect();
    let done = in_parallel(calls(wants), threads, |call| perform(ctx, call));
    for (range, result) in done.into_iter().flatten() {
        match (&mut results[range], result) {
            (Ok(sum), Ok(len)) => *sum += len,
            (so_far @ Ok(_), Err(error)) => *so_far = Err(error),
            (Err(_), _) => {}
        }
    }
    results
}

/// Cuts large ranges and combines small ones.
fn calls(wants: Vec<Want<'_>>) -> Vec<Call<'_>> {
    let mut calls: Vec<Call<'_>> = Vec::new();
    let mut gathered: Call<'_> = Vec::new();
    let mut gathered_bytes = 0;
    for Want { range, file, mut offset, mut dest } in wants {
        if dest.len() > SMALL_BYTES {
            while !dest.is_empty() {
                let (part, rest) = dest.split_at_mut(dest.len().min(MAX_PAYLOAD_BYTES));
                let next = offset + part.len() as u64;
                calls.push(vec![Want { range, file, offset, dest: part }]);
                (offset, dest) = (next, rest);
            }
            continue;
        }
        if dest.is_empty() {
            continue;
        }
        let other = gathered.first().is_some_and(|first| !std::ptr::eq(first.file, file));
        let full = gathered.len() == MAX_REGIONS || gathered_bytes + dest.len() > TOGETHER_BYTES;
        if other || full {
            calls.push(std::mem::take(&mut gathered));
            gathered_bytes = 0;
        }
        gathered_bytes += dest.len();
        gathered.push(Want { range, file, offset, dest });
    }
    if !gathered.is_empty() {
        calls.push(gathered);
    }
    calls
}

fn perform(ctx: &Context, mut call: Call<'_>) -> Vec<(usize, Result<usize>)> {
    if let [Want { range, file, offset, dest }] = &mut call[..] {
        return vec![(*range, file.read_at(ctx, *offset, dest))];
    }
    let result = together(ctx, &mut call);
    let one = |want: Want<'_>| (want.range, result.clone().map(|()| want.dest.len()));
    call.into_iter().map(one).collect()
}

/// Reads several ranges of one file with one call.
fn together(ctx: &Context, call: &mut Call<'_>) -> Result<()> {
    let Some(file) = call.first().map(|want| want.file) else { return Ok(()) };
    let region = |want: &Want<'_>| Region::contiguous(want.offset, want.dest.len() as u64);
    let regions = RegionList::new(call.iter().map(region).collect())?;
    let len = call.iter().map(|want| want.dest.len()).sum();
    let mut buffer = vec![0; len];
    file.read_regions(ctx, &regions, &mut buffer)?;
    let mut rest = &buffer[..];
    for want in call {
        let (bytes, behind) = rest.split_at(want.dest.len());
        want.dest.copy_from_slice(bytes);
        rest = behind;
    }
    Ok(())
}

/// Writes ranges in any order, small ones combined. If two overlap, or one exceeds the largest
/// file, nothing is written.
pub(crate) fn write(ctx: &Context, file: &File, mut ranges: Vec<(u64, &[u8])>) -> Result<()> {
    ranges.retain(|(_, data)| !data.is_empty());
    ranges.sort_unstable_by_key(|(offset, _)| *offset);
    let end = |(offset, data): &(u64, &[u8])| offset.saturating_add(data.len() as u64);
    if let Some(pair) = ranges.windows(2).find(|pair| end(&pair[0]) > pair[1].0) {
        let text =
            format!("the pieces at {} and {} overlap: write one of them", pair[0].0, pair[1].0);
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    if ranges.last().is_some_and(|last| end(last) > MAX_FILE_BYTES) {
        let text = format!("a piece ends beyond the largest file ({MAX_FILE_BYTES} bytes)");
        return Err(Error::new(ErrorKind::FileTooLarge, text));
    }
    let mut rest = &ranges[..];
    while let Some(((offset, data), behind)) = rest.split_first() {
        if data.len() > SMALL_BYTES {
            file.write_at(ctx, *offset, data)?;
            rest = behind;
            continue;
        }
        let mut bytes = 0;
        let fits = |(_, data): &&(u64, &[u8])| {
            bytes += data.len();
            data.len() <= SMALL_BYTES && bytes <= MAX_PAYLOAD_BYTES
        };
        let count = rest.iter().take(MAX_REGIONS).take_while(fits).count();
        let (now, later) = rest.split_at(count);
        rest = later;
        let region = |(offset, data): &(u64, &[u8])| Region::contiguous(*offset, data.len() as u64);
        let regions: Vec<Region> = now.iter().map(region).collect();
        let data: Vec<u8> = now.iter().flat_map(|(_, data)| data.iter().copied()).collect();
        file.write_regions(ctx, &RegionList::new(regions)?, &data)?;
    }
    Ok(())
}

/// The size of a file, if a read that ends at `end` needs it.
pub(crate) fn size_for(
    client: &weir_client::Client,
    ctx: &Context,
    file: &File,
    end: u64,
) -> Result<u64, Error> {
    let known = file.size();
    if end <= known { Ok(known) } else { Ok(client.getattr(ctx, file.id())?.size) }
}
