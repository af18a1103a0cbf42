//! Read-ahead: finds the sequential streams among the reads of a file, and says which ranges to
//! fetch before they are asked for. There can be several streams: from threads, or from the pieces
//! that the kernel asks for out of order.

use std::ops::Range;

/// The most streams of one file. The one unused for longest is replaced.
const MAX_STREAMS: usize = 8;
/// The smallest range that is fetched ahead. Small calls are served from its buffer.
pub const MIN_AHEAD_BYTES: u64 = 1 << 20;
/// The largest range that is fetched ahead at once.
pub const MAX_AHEAD_BYTES: u64 = 4 << 20;
/// A first read of this size at the start of a file counts as a stream.
const EAGER_BYTES: u64 = 128 << 10;

/// How a handle is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// As it turns out: what is read in order is fetched ahead.
    #[default]
    Usual,
    /// In no order, or each byte once: nothing is fetched ahead, and nothing is kept.
    Random,
    /// From its end to its beginning: what is before a read is fetched.
    Reverse,
    /// In no order, by parts of records of so many bytes: the whole record is fetched.
    Records(u64),
}

impl Pattern {
    /// The pattern as a number, so that it can be changed while others read.
    pub fn code(self) -> u64 {
        match self {
            Self::Usual => 0,
            Self::Random => 1,
            Self::Reverse => 2,
            Self::Records(bytes) => bytes << 2 | 3,
        }
    }

    /// The pattern with this number.
    pub fn of(code: u64) -> Self {
        match code & 3 {
            0 => Self::Usual,
            1 => Self::Random,
            2 => Self::Reverse,
            _ => Self::Records(code >> 2),
        }
    }
}

/// The whole records of a range of a file of `size` bytes, if that has only parts of some, and if they
/// are not too large to be fetched ahead.
pub fn records_of(range: &Range<u64>, bytes: u64, size: u64) -> Option<Range<u64>> {
    let start = range.start - range.start.checked_rem(bytes)?;
    let end = range.end.checked_next_multiple_of(bytes)?.min(size);
    let whole = start..end;
    (whole != *range && end.checked_sub(start)? <= MAX_AHEAD_BYTES).then_some(whole)
}

#[derive(Debug)]
struct Stream {
    /// Offset at which the next read is expected.
    next: u64,
    /// End of the bytes that were read or fetched ahead.
    fetched: u64,
    /// Bytes to keep fetched ahead. It grows while the stream goes on.
    window_bytes: u64,
    last_used: u64,
}

/// A stream from the end of a file to its beginning.
#[derive(Debug)]
struct Backward {
    /// The last call. The next one ends where it starts.
    last: Range<u64>,
    /// Start of the bytes that were read or fetched ahead.
    fetched: u64,
    /// As that of [`Stream`].
    window_bytes: u64,
}

/// The streams of one file.
#[derive(Debug, Default)]
pub struct Streams {
    streams: Vec<Stream>,
    uses: u64,
    backward: Option<Backward>,
}

impl Streams {
    /// Records a read of `range` of a file of `size` bytes, and puts the ranges to fetch ahead into
    /// `ahead` (cleared first). At most `max_window_bytes` are kept ahead of a stream; 0 turns
    /// read-ahead off.
    pub fn on_read(
        &mut self,
        range: Range<u64>,
        size: u64,
        max_window_bytes: u64,
        ahead: &mut Vec<Range<u64>>,
    ) {
        ahead.clear();
        if max_window_bytes == 0 || range.is_empty() {
            return;
        }
        self.uses += 1;
        let len = range.end - range.start;
        // One that has read there before, and fetches nothing there any more, comes second.
        let next = self.streams.iter().position(|stream| stream.next == range.start);
        let found = next.or_else(|| self.streams.iter().position(|s| s.continues_with(&range)));
        let Some(stream) = found.and_then(|at| self.streams.get_mut(at)) else {
            return self.begin(range, size, max_window_bytes, ahead);
        };
        stream.last_used = self.uses;
        stream.next = stream.next.max(range.end);
        stream.fetched = stream.fetched.max(stream.next);
        stream.window_bytes = (stream.window_bytes * 2).max(2 * len).min(max_window_bytes);
        stream.fetch(len, size, ahead);
    }

    fn begin(
        &mut self,
        range: Range<u64>,
        size: u64,
        max_window_bytes: u64,
        ahead: &mut Vec<Range<u64>>,
    ) {
        let len = range.end - range.start;
        let mut stream =
            Stream { next: range.end, fetched: range.end, window_bytes: 0, last_used: self.uses };
        if range.start == 0 && len >= EAGER_BYTES {
            stream.window_bytes = (2 * len).min(max_window_bytes);
            stream.fetch(len, size, ahead);
        }
        if self.streams.len() < MAX_STREAMS {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|s| s.last_used) {
            *oldest = stream;
        }
    }

    /// As [`Self::on_read`], for a reader that has said that it reads backwards.
    pub fn on_read_backward(
        &mut self,
        range: Range<u64>,
        max_window_bytes: u64,
        ahead: &mut Vec<Range<u64>>,
    ) {
        ahead.clear();
        if max_window_bytes == 0 || range.is_empty() {
            return;
        }
        let len = range.end - range.start;
        let mut stream = match self.backward.take() {
            // The rest of a call, of which a part came from what was fetched.
            Some(stream) if range.start > stream.last.start && range.start <= stream.last.end => {
                let last = stream.last.start..stream.last.end.max(range.end);
                self.backward = Some(Backward { last, ..stream });
                return;
            }
            Some(stream) if range.start <= stream.last.start && range.end >= stream.fetched => {
                stream
            }
            _ => Backward { last: range.clone(), fetched: range.start, window_bytes: 0 },
        };
        stream.fetched = stream.fetched.min(range.start);
        stream.window_bytes = (stream.window_bytes * 2).max(2 * len).min(max_window_bytes);
        stream.last = range;
        stream.fetch(len, ahead);
        self.backward = Some(stream);
    }

    /// Forgets what was fetched (after a write or truncation).
    pub fn clear(&mut self) {
        self.streams.clear();
        self.backward = None;
    }
}

impl Backward {
    fn fetch(&mut self, call_bytes: u64, ahead: &mut Vec<Range<u64>>) {
        let piece = call_bytes.clamp(MIN_AHEAD_BYTES, MAX_AHEAD_BYTES);
        let limit = self.last.start.saturating_sub(self.window_bytes.max(piece));
        while self.fetched > limit && (self.fetched - limit >= piece || limit == 0) {
            let start = self.fetched.saturating_sub(piece);
            ahead.push(start..self.fetched);
            self.fetched = start;
        }
    }
}

impl Stream {
    /// Whether a read belongs to this stream though it is not the next one: reads may come out of order
    /// within the fetched bytes.
    fn continues_with(&self, range: &Range<u64>) -> bool {
        // One that has read all that was fetched is at its end: who reads before begins anew.
        self.next < self.fetched
            && range.start < self.fetched
            && range.start + self.window_bytes >= self.next
    }

    fn fetch(&mut self, call_bytes: u64, size: u64, ahead: &mut Vec<Range<u64>>) {
        // A piece that equals the reader's call goes straight into its buffer.
        let piece = call_bytes.clamp(MIN_AHEAD_BYTES, MAX_AHEAD_BYTES);
        let limit = size.min(self.next + self.window_bytes.max(piece));
        while self.fetched < limit && (self.fetched + piece <= limit || limit == size) {
            let end = self.fetched + piece;
            // Small calls are served from its buffer, wherever it ends: at whole stripes, if they fit.
            let over = if call_bytes < MIN_AHEAD_BYTES { end % MIN_AHEAD_BYTES } else { 0 };
            let end = (end - over).min(size);
            ahead.push(self.fetched..end);
            self.fetched = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn patterns_have_numbers() {
        let all =
            [Pattern::Usual, Pattern::Random, Pattern::Reverse, Pattern::Records(MAX_AHEAD_BYTES)];
        all.into_iter().for_each(|pattern| assert_eq!(Pattern::of(pattern.code()), pattern));
    }

    #[test]
    fn parts_of_records_are_extended_to_whole_ones_within_the_file() {
        assert_eq!(records_of(&(100..120), 838, 10_000), Some(0..838));
        assert_eq!(records_of(&(1670..1680), 838, 10_000), Some(838..2514), "of two");
        assert_eq!(records_of(&(9_300..9_400), 838, 9_500), Some(9_218..9_500), "the last one");
        assert_eq!(records_of(&(838..1676), 838, 10_000), None, "it is whole");
        assert_eq!(records_of(&(9_218..9_500), 838, 9_500), None);
        assert_eq!(records_of(&(0..10), 5 * MIB, 100 * MIB), None, "too much");
        assert_eq!(records_of(&(0..10), 0, 100), None);
        assert_eq!(records_of(&(u64::MAX - 1..u64::MAX), 838, u64::MAX), None);
    }

    fn reads(calls: &[Range<u64>], size: u64, window: u64) -> Vec<Range<u64>> {
        let (mut streams, mut all, mut ahead) = (Streams::default(), Vec::new(), Vec::new());
        for call in calls {
            streams.on_read(call.clone(), size, window, &mut ahead);
            all.append(&mut ahead);
        }
        all
    }

    #[test]
    fn a_sequential_reader_gets_every_later_byte_fetched_once() {
        let size = 20 * MIB + 5;
        let calls: Vec<_> = (0..21).map(|i| i * MIB..((i + 1) * MIB).min(size)).collect();
        let fetched = reads(&calls, size, 4 * MIB);
        assert_eq!(fetched.first().map(|r| r.start), Some(MIB));
        assert!(fetched.windows(2).all(|w| w[0].end == w[1].start));
        assert_eq!(fetched.last().map(|r| r.end), Some(size));
    }

    #[test]
    fn who_reads_a_file_again_gets_it_fetched_ahead_again() {
        let call = 64 << 10;
        for size in [MIB, 2 * MIB, 4 * MIB, 5 * MIB, 16 * MIB] {
            let (mut streams, mut ahead) = (Streams::default(), Vec::new());
            for pass in 0..2 * MAX_STREAMS {
                let mut fetched = 0;
                for n in 0..size / call {
                    streams.on_read(n * call..(n + 1) * call, size, 4 * MIB, &mut ahead);
                    fetched += ahead.iter().map(|range| range.end - range.start).sum::<u64>();
                }
                assert!(fetched >= size - 2 * call, "pass {pass}: {fetched} of {size} bytes");
            }
        }
    }

    #[test]
    fn the_window_is_a_bound() {
        let (mut streams, mut ahead) = (Streams::default(), Vec::new());
        let mut fetched = 0;
        for i in 0..100 {
            streams.on_read(i * MIB..(i + 1) * MIB, 1 << 40, 4 * MIB, &mut ahead);
            fetched = ahead.last().map_or(fetched, |r| r.end);
            assert!(fetched <= (i + 1) * MIB + 4 * MIB);
        }
    }

    #[test]
    fn random_and_single_small_reads_fetch_nothing() {
        let calls: Vec<_> =
            [700u64, 3, 900, 41, 77, 500].iter().map(|b| b * 4096..(b + 1) * 4096).collect();
        assert!(reads(&calls, 1 << 30, 4 * MIB).is_empty());
        let first = std::iter::once(0..4096).collect::<Vec<_>>();
        assert!(reads(&first, 1 << 30, 4 * MIB).is_empty());
    }

    #[test]
    fn turned_off_it_fetches_nothing() {
        let calls: Vec<_> = (0..10).map(|i| i * MIB..(i + 1) * MIB).collect();
        assert!(reads(&calls, 1 << 30, 0).is_empty());
    }

    #[test]
    fn two_interleaved_streams_are_both_followed() {
        let base = 1 << 30;
        let calls: Vec<_> = (0..8)
            .flat_map(|i| [i * MIB..(i + 1) * MIB, base + i * MIB..base + (i + 1) * MIB])
            .collect();
        let fetched = reads(&calls, 2 << 30, 4 * MIB);
        assert!(fetched.iter().any(|r| r.start >= 6 * MIB && r.start < base));
        assert!(fetched.iter().any(|r| r.start >= base + 6 * MIB));
    }

    /// The last calls first, each in two parts where it crosses the start of what was fetched.
    fn reads_backward(size: u64, len: u64, window: u64) -> Vec<Range<u64>> {
        let (mut streams, mut all, mut ahead) = (Streams::default(), Vec::new(), Vec::new());
        let mut end = size;
        while end > 0 {
            let start = end.saturating_sub(len);
            streams.on_read_backward(start..end, window, &mut ahead);
            let lowest = ahead.last().map_or(start, |range| range.start);
            assert!(
                lowest + window.max(len.max(MIN_AHEAD_BYTES)) >= start,
                "the window is a bound"
            );
            all.append(&mut ahead);
            streams.on_read_backward(start + (end - start) / 2..end, window, &mut ahead);
            assert!(start + 1 == end || ahead.is_empty(), "the rest of a call fetches nothing");
            end = start;
        }
        all
    }

    #[test]
    fn a_backward_reader_gets_every_earlier_byte_fetched_once() {
        for (size, len) in [(20 * MIB + 5, MIB), (9 * MIB, 838), (5 * MIB, 3 * MIB), (100, 7)] {
            let fetched = reads_backward(size, len, 4 * MIB);
            assert_eq!(fetched.first().map(|r| r.end), Some(size - len), "{size} {len}");
            assert!(fetched.windows(2).all(|w| w[0].start == w[1].end), "{size} {len}");
            assert_eq!(fetched.last().map(|r| r.start), Some(0), "{size} {len}");
        }
    }

    #[test]
    fn a_jump_begins_a_backward_stream_anew() {
        let (mut streams, mut ahead) = (Streams::default(), Vec::new());
        streams.on_read_backward(9 * MIB..10 * MIB, 4 * MIB, &mut ahead);
        streams.on_read_backward(29 * MIB..30 * MIB, 4 * MIB, &mut ahead);
        assert_eq!(ahead.first().map(|r| r.end), Some(29 * MIB));
        streams.on_read_backward(MIB..2 * MIB, 4 * MIB, &mut ahead);
        assert_eq!((ahead.len(), ahead[0].clone()), (1, 0..MIB));
        streams.on_read_backward(0..MIB, 4 * MIB, &mut ahead);
        assert!(ahead.is_empty());
    }

    #[test]
    fn reads_out_of_order_stay_one_stream() {
        let calls = [0..MIB, 2 * MIB..3 * MIB, MIB..2 * MIB, 3 * MIB..4 * MIB];
        let (mut streams, mut ahead) = (Streams::default(), Vec::new());
        for call in calls {
            streams.on_read(call, 1 << 30, 4 * MIB, &mut ahead);
        }
        assert_eq!(streams.streams.len(), 1);
    }
}
