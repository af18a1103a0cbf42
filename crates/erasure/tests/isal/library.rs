//! ISA-L, loaded by `dlopen` so that it is not needed to build.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::{CStr, c_int, c_uchar, c_void};

type PqGen = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;
type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    *const c_uchar,
    *const *const c_uchar,
    *const *mut c_uchar,
);

/// Bytes of the tables for one factor.
const TABLE: usize = 32;
/// Alignment of addresses and lengths that `pq_gen` needs.
const ALIGNMENT: usize = 64;

/// The functions of ISA-L that the tests call.
pub struct Isal {
    pq_gen: PqGen,
    init_tables: InitTables,
    encode_data: EncodeData,
}

impl Isal {
    /// `None` if ISA-L is not installed.
    pub fn load() -> Option<Self> {
        // SAFETY: the name is a C string, and the library's initialisers have no preconditions.
        let library = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let find = |name: &CStr| {
            // SAFETY: the library stays open, and the name is a C string.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        // SAFETY: the types are those of ISA-L's `raid.h` and `erasure_code.h`.
        unsafe {
            Some(Self {
                pq_gen: std::mem::transmute::<*mut c_void, PqGen>(find(c"pq_gen")?),
                init_tables: std::mem::transmute::<*mut c_void, InitTables>(find(
                    c"ec_init_tables",
                )?),
                encode_data: std::mem::transmute::<*mut c_void, EncodeData>(find(
                    c"ec_encode_data",
                )?),
            })
        }
    }

    /// Computes P and Q of blocks of one length, into the last two blocks.
    pub fn pq_gen(&self, blocks: &mut [Aligned]) {
        let len = blocks[0].len();
        assert!(len.is_multiple_of(32) && blocks.iter().all(|block| block.len() == len));
        let mut addresses: Vec<*mut c_void> =
            blocks.iter_mut().map(|block| block.as_mut_slice().as_mut_ptr().cast()).collect();
        let (count, len) = (addresses.len() as c_int, len as c_int);
        // SAFETY: `count` blocks of `len` bytes each, aligned as `pq_gen` needs.
        let failed = unsafe { (self.pq_gen)(count, len, addresses.as_mut_ptr()) };
        assert_eq!(failed, 0, "pq_gen refused its arguments");
    }

    /// P and Q of members.
    #[allow(dead_code, reason = "the benchmark and the test use a part each")]
    pub fn p_and_q(&self, members: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
        let mut blocks: Vec<Aligned> = members.iter().map(|member| Aligned::of(member)).collect();
        let parity = || Aligned::of(&vec![0; members[0].len()]);
        blocks.extend([parity(), parity()]);
        self.pq_gen(&mut blocks);
        let [.., p, q] = &mut blocks[..] else { unreachable!("two were added") };
        (p.as_mut_slice().to_vec(), q.as_mut_slice().to_vec())
    }

    /// Parities by a matrix with one row for each.
    #[allow(dead_code, reason = "the benchmark and the test use a part each")]
    pub fn encode(&self, rows: &[u8], members: &[Vec<u8>], parities: usize) -> Vec<Vec<u8>> {
        let (count, len) = (members.len(), members[0].len());
        assert_eq!(rows.len(), count * parities);
        let mut tables = vec![0; TABLE * rows.len()];
        let mut out = vec![vec![0; len]; parities];
        let sources: Vec<*const u8> = members.iter().map(|member| member.as_ptr()).collect();
        let outputs: Vec<*mut u8> = out.iter_mut().map(|parity| parity.as_mut_ptr()).collect();
        let (count, parities, len) = (count as c_int, parities as c_int, len as c_int);
        // SAFETY: the matrix has `count·parities` factors, the tables have 32 bytes for each, and
        // every source and output has `len` bytes.
        unsafe {
            (self.init_tables)(count, parities, rows.as_ptr(), tables.as_mut_ptr());
            let (sources, outputs) = (sources.as_ptr(), outputs.as_ptr());
            (self.encode_data)(len, count, parities, tables.as_ptr(), sources, outputs);
        }
        out
    }
}

/// Bytes with the alignment of `pq_gen`.
pub struct Aligned {
    begin: *mut u8,
    layout: Layout,
}

impl Aligned {
    /// A copy of at least one byte.
    pub fn of(bytes: &[u8]) -> Self {
        assert!(!bytes.is_empty());
        let layout = Layout::from_size_align(bytes.len(), ALIGNMENT).expect("a small block");
        // SAFETY: the size is not zero.
        let begin = unsafe { alloc_zeroed(layout) };
        if begin.is_null() {
            handle_alloc_error(layout);
        }
        let mut block = Self { begin, layout };
        block.as_mut_slice().copy_from_slice(bytes);
        block
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// All bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `alloc_zeroed` has initialised this many bytes, and `&mut self` is the only
        // access.
        unsafe { std::slice::from_raw_parts_mut(self.begin, self.layout.size()) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.begin, self.layout) };
    }
}
