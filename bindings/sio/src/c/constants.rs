//! The constants of the header, for tests and fuzzers.

use crate::core::codes::Code;

macro_rules! constants {
    ($($name:ident = $c:literal, $value:literal;)*) => {
        $(#[doc = $c] pub const $name: u32 = $value;)*

        const SMALL: &[(&str, u64)] = &[$(($c, $value),)*];
    };
}

constants! {
    MODE_READ = "SIO_MODE_READ", 1;
    MODE_WRITE = "SIO_MODE_WRITE", 2;
    MODE_CREATE = "SIO_MODE_CREATE", 4;
    CONTROL_MANDATORY = "SIO_CONTROL_MANDATORY", 1;
    CTL_GET_SIZE = "SIO_CTL_GetSize", 1;
    CTL_SET_SIZE = "SIO_CTL_SetSize", 2;
    CTL_GET_ALLOCATION = "SIO_CTL_GetAllocation", 3;
    CTL_GET_PREALLOCATION = "SIO_CTL_GetPreallocation", 4;
    CTL_SET_PREALLOCATION = "SIO_CTL_SetPreallocation", 5;
    CTL_GET_CACHING_MODE = "SIO_CTL_GetCachingMode", 6;
    CTL_SET_CACHING_MODE = "SIO_CTL_SetCachingMode", 7;
    CTL_PROPAGATE = "SIO_CTL_Propagate", 8;
    CTL_REFRESH = "SIO_CTL_Refresh", 9;
    CTL_SYNC = "SIO_CTL_Sync", 10;
    CTL_GET_LAYOUT = "SIO_CTL_GetLayout", 11;
    CTL_SET_LAYOUT = "SIO_CTL_SetLayout", 12;
    CTL_GET_LABEL = "SIO_CTL_GetLabel", 13;
    CTL_SET_LABEL = "SIO_CTL_SetLabel", 14;
    CTL_GET_CONSISTENCY_UNIT = "SIO_CTL_GetConsistencyUnit", 15;
    CTL_FAST_COPY = "SIO_CTL_FastCopy", 16;
    CACHING_NONE = "SIO_CACHING_NONE", 1;
    CACHING_STRONG = "SIO_CACHING_STRONG", 2;
    CACHING_WEAK = "SIO_CACHING_WEAK", 3;
    LAYOUT_WIDTH = "SIO_LAYOUT_WIDTH", 1;
    LAYOUT_DEPTH = "SIO_LAYOUT_DEPTH", 2;
    LAYOUT_ALGORITHM = "SIO_LAYOUT_ALGORITHM", 4;
    LAYOUT_ALGORITHM_SIMPLE_STRIPING = "SIO_LAYOUT_ALGORITHM_SIMPLE_STRIPING", 1;
    HINT_CLASS_ORDERED = "SIO_HINT_CLASS_ORDERED", 1;
    HINT_CLASS_UNORDERED = "SIO_HINT_CLASS_UNORDERED", 2;
    HINT_READ = "SIO_HINT_READ", 1;
    HINT_WRITE = "SIO_HINT_WRITE", 2;
    HINT_CANCEL_ALL = "SIO_HINT_CANCEL_ALL", 4;
    HINT_CANCEL_NEXT = "SIO_HINT_CANCEL_NEXT", 8;
    HINT_SEQUENTIAL = "SIO_HINT_SEQUENTIAL", 16;
    HINT_REVERSE = "SIO_HINT_REVERSE", 32;
    HINT_RANDOM_PARTIAL = "SIO_HINT_RANDOM_PARTIAL", 64;
    HINT_RANDOM_COMPLETE = "SIO_HINT_RANDOM_COMPLETE", 128;
    HINT_NO_FURTHER_USE = "SIO_HINT_NO_FURTHER_USE", 256;
    HINT_WILL_USE = "SIO_HINT_WILL_USE", 512;
    HINT_READ_ONCE = "SIO_HINT_READ_ONCE", 1024;
    HINT_RECORDS = "SIO_HINT_RECORDS", 2048;
    ASYNC_BLOCKING = "SIO_ASYNC_BLOCKING", 1;
    ASYNC_NONBLOCKING = "SIO_ASYNC_NONBLOCKING", 2;
    COLL_READ = "SIO_COLL_READ", 1;
    COLL_WRITE = "SIO_COLL_WRITE", 2;
    EXT_FAST_COPY = "SIO_EXT_FAST_COPY", 1;
    EXT_COLLECTIVE = "SIO_EXT_COLLECTIVE", 2;
    MAX_ASYNC_OUTSTANDING = "SIO_MAX_ASYNC_OUTSTANDING", 256;
    MAX_COUNT = "SIO_MAX_COUNT", 65536;
    MAX_LABEL_LEN = "SIO_MAX_LABEL_LEN", 1024;
    MAX_NAME_LEN = "SIO_MAX_NAME_LEN", 1023;
    MAX_OPEN = "SIO_MAX_OPEN", 256;
    MAX_TRANSFER_LEN = "SIO_MAX_TRANSFER_LEN", 1073741824;
}

/// Name and number of each constant of the header.
pub fn all() -> Vec<(&'static str, u64)> {
    use crate::core::limits;
    let codes = Code::ALL.iter().map(|&(code, name)| (name, code as u64));
    let large = [("SIO_MAX_OFFSET", limits::MAX_OFFSET), ("SIO_MAX_SIZE", limits::MAX_SIZE)];
    SMALL.iter().copied().chain(codes).chain(large).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{hint, limits};
    use std::collections::BTreeMap;

    const HEADER: &str = include_str!("../../include/sio_fs.h");

    #[test]
    fn the_header_and_the_library_have_the_same_numbers() {
        let define = |line: &'static str| {
            let mut words = line.strip_prefix("#define ")?.split_whitespace();
            Some((words.next()?, words.next()?.parse::<u64>().ok()?))
        };
        let header: BTreeMap<_, _> = HEADER.lines().filter_map(define).collect();
        let library: BTreeMap<_, _> = all().into_iter().collect();
        assert_eq!(header, library);
    }

    #[test]
    fn the_header_says_the_limits_that_hold() {
        assert_eq!(MAX_ASYNC_OUTSTANDING as usize, limits::MAX_ASYNC_OUTSTANDING);
        assert_eq!(MAX_OPEN as usize, limits::MAX_OPEN);
        assert_eq!(MAX_COUNT, limits::MAX_COUNT);
        assert_eq!(MAX_LABEL_LEN as usize, limits::MAX_LABEL_LEN);
        assert_eq!(MAX_NAME_LEN as usize, limits::MAX_NAME_LEN);
        assert_eq!(u64::from(MAX_TRANSFER_LEN), limits::MAX_TRANSFER_LEN);
        let hints = HINT_READ | HINT_WRITE | HINT_CANCEL_ALL | HINT_CANCEL_NEXT;
        let patterns = HINT_SEQUENTIAL | HINT_REVERSE | HINT_RANDOM_PARTIAL | HINT_RANDOM_COMPLETE;
        let uses = HINT_NO_FURTHER_USE | HINT_WILL_USE;
        let ours = HINT_READ_ONCE | HINT_RECORDS;
        assert_eq!(hints | patterns | uses | ours, hint::bits::ALL);
    }
}
