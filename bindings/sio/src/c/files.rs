//! Files, controls and hints.

use super::attach::{enter, library, remember};
use super::constants::{
    self, CONTROL_MANDATORY as MANDATORY, LAYOUT_ALGORITHM as ALGORITHM,
    LAYOUT_ALGORITHM_SIMPLE_STRIPING as SIMPLE_STRIPING, LAYOUT_DEPTH as DEPTH,
    LAYOUT_WIDTH as WIDTH,
};
use super::types::{
    file_list, hint_list, list, name, sio_control_t, sio_fast_copy_t, sio_file_ranges_t,
    sio_hint_t, sio_label_t, sio_layout_t, sio_return_t, target,
};
use crate::core::codes::{Code, Failure, Result};
use crate::core::control::{Answer, Caching, Control, Copy, Layout, Op, Outcome};
use crate::core::limits::{MAX_CONTROLS, MAX_LABEL_LEN};
use std::ffi::{c_char, c_int};

/// # Safety
/// `ops` is NULL or has `nops` entries, whose `op_data` is NULL or points to what the header says.
unsafe fn controls<'a>(ops: *mut sio_control_t, nops: u32) -> Result<&'a mut [sio_control_t]> {
    // SAFETY: by the contract of this function.
    unsafe { list(ops.cast_const(), nops, MAX_CONTROLS, Code::InvalidArgument) }?;
    if nops == 0 {
        return Ok(&mut []);
    }
    // SAFETY: checked by `list`, and nobody else uses it meanwhile.
    Ok(unsafe { std::slice::from_raw_parts_mut(ops, nops as usize) })
}

/// # Safety
/// See [`controls`].
unsafe fn read_control(control: &sio_control_t) -> Control {
    // SAFETY: by the contract of this function.
    let op = match unsafe { read_op(control) } {
        _ if control.flags & !MANDATORY != 0 => {
            Op::Refused(Failure::new(Code::InvalidArgument, "unknown flags of a control"))
        }
        Ok(op) => op,
        Err(failure) => Op::Refused(failure),
    };
    Control { mandatory: control.flags & MANDATORY != 0, op }
}

/// # Safety
/// See [`controls`].
unsafe fn read_op(control: &sio_control_t) -> Result<Op> {
    let data = control.op_data;
    let what = "the data of a control";
    // SAFETY: of each, as the caller has promised.
    let bytes = || unsafe { target(data.cast::<u64>(), what) }.map(|bytes| *bytes);
    let ranges = || {
        if data.is_null() {
            return Ok(None);
        }
        // SAFETY: as above.
        let ranges = unsafe { target(data.cast::<sio_file_ranges_t>(), what) }?;
        // SAFETY: as above.
        unsafe { file_list(ranges.list, ranges.list_len) }.map(Some)
    };
    // SAFETY: as above.
    let label = || unsafe { target(data.cast::<sio_label_t>(), what) };
    // SAFETY: as above.
    let layout = || unsafe { target(data.cast::<sio_layout_t>(), what) };
    // SAFETY: as above.
    let mode = || unsafe { target(data.cast::<u32>(), what) };
    Ok(match control.op_code {
        constants::CTL_GET_SIZE => bytes().map(|_| Op::GetSize)?,
        constants::CTL_SET_SIZE => Op::SetSize(bytes()?),
        constants::CTL_GET_ALLOCATION => bytes().map(|_| Op::GetAllocation)?,
        constants::CTL_GET_PREALLOCATION => bytes().map(|_| Op::GetPreallocation)?,
        constants::CTL_SET_PREALLOCATION => Op::SetPreallocation(bytes()?),
        constants::CTL_GET_CACHING_MODE => mode().map(|_| Op::GetCachingMode)?,
        constants::CTL_SET_CACHING_MODE => Op::SetCachingMode(read_caching(*mode()?)?),
        constants::CTL_PROPAGATE => Op::Propagate(ranges()?),
        constants::CTL_REFRESH => Op::Refresh(ranges()?),
        constants::CTL_SYNC => Op::Sync,
        constants::CTL_GET_LAYOUT => layout().map(|_| Op::GetLayout)?,
        constants::CTL_SET_LAYOUT => Op::SetLayout(read_layout(layout()?)?),
        constants::CTL_GET_LABEL => match label()? {
            label if label.data.is_null() && label.size > 0 => {
                return Err(Failure::new(Code::InvalidArgument, "the label is NULL"));
            }
            _ => Op::GetLabel,
        },
        constants::CTL_SET_LABEL => {
            let label = label()?;
            if label.size > MAX_LABEL_LEN as u64 {
                let what = format!("a label of {} bytes, the most is {MAX_LABEL_LEN}", label.size);
                return Err(Failure::new(Code::InvalidArgument, what));
            }
            let (data, len) = (label.data.cast::<u8>().cast_const(), label.size as u32);
            // SAFETY: the label has the stated length.
            Op::SetLabel(unsafe { list(data, len, len, Code::InvalidArgument) }?.to_vec())
        }
        constants::CTL_GET_CONSISTENCY_UNIT => bytes().map(|_| Op::GetConsistencyUnit)?,
        constants::CTL_FAST_COPY => {
            // SAFETY: as above.
            let copy = unsafe { target(data.cast::<sio_fast_copy_t>(), what) }?;
            let (source, source_offset) = (copy.source, copy.source_offset);
            Op::FastCopy(Copy { source, source_offset, offset: copy.offset, size: copy.size })
        }
        other => {
            return Err(Failure::new(Code::OpUnsupported, format!("there is no control {other}")));
        }
    })
}

fn read_caching(mode: u32) -> Result<Caching> {
    match mode {
        constants::CACHING_NONE => Ok(Caching::None),
        constants::CACHING_STRONG => Ok(Caching::Strong),
        constants::CACHING_WEAK => Ok(Caching::Weak),
        _ => Err(Failure::new(Code::InvalidArgument, format!("there is no caching mode {mode}"))),
    }
}

fn caching_number(mode: Caching) -> u32 {
    match mode {
        Caching::None => constants::CACHING_NONE,
        Caching::Strong => constants::CACHING_STRONG,
        Caching::Weak => constants::CACHING_WEAK,
    }
}

fn read_layout(layout: &sio_layout_t) -> Result<Layout> {
    let has = |bit| layout.flags & bit != 0;
    if layout.flags & !(WIDTH | DEPTH | ALGORITHM) != 0 {
        return Err(Failure::new(Code::InvalidArgument, "unknown flags of a layout"));
    }
    if has(ALGORITHM) && layout.algorithm != SIMPLE_STRIPING {
        let what = format!("there is no layout algorithm {}", layout.algorithm);
        return Err(Failure::new(Code::OpUnsupported, what));
    }
    if (has(WIDTH) && layout.stripe_width == 0) || (has(DEPTH) && layout.stripe_depth == 0) {
        return Err(Failure::new(Code::InvalidArgument, "stripes of width or depth 0"));
    }
    Ok(Layout {
        width: has(WIDTH).then_some(layout.stripe_width),
        depth: has(DEPTH).then_some(layout.stripe_depth),
        algorithm: has(ALGORITHM),
    })
}

/// Stores the outcome of a control.
///
/// # Safety
/// See [`controls`].
unsafe fn write_outcome(control: &mut sio_control_t, outcome: Option<&Outcome>) {
    let answer = match outcome {
        None => {
            control.result = Code::ControlNotAttempted as i32;
            return;
        }
        Some(Err(failure)) => {
            control.result = failure.code as i32;
            if failure.code != Code::ControlWouldHaveSucceeded
                && failure.code != Code::ControlNotAttempted
            {
                remember(failure);
            }
            return;
        }
        Some(Ok(answer)) => answer,
    };
    control.result = Code::Success as i32;
    let data = control.op_data;
    // SAFETY: a control with an answer was read by `read_op`, which has checked that its data has
    // the type of the answer.
    unsafe {
        match answer {
            Answer::Done => {}
            Answer::Bytes(bytes) if control.op_code == constants::CTL_FAST_COPY => {
                (*data.cast::<sio_fast_copy_t>()).copied = *bytes;
            }
            Answer::Bytes(bytes) => *data.cast::<u64>() = *bytes,
            Answer::Caching(mode) => *data.cast::<u32>() = caching_number(*mode),
            Answer::Layout(layout) => {
                let to = &mut *data.cast::<sio_layout_t>();
                let flag = |named: bool, bit| if named { bit } else { 0 };
                to.flags = flag(layout.width.is_some(), WIDTH)
                    | flag(layout.depth.is_some(), DEPTH)
                    | flag(layout.algorithm, ALGORITHM);
                to.stripe_width = layout.width.unwrap_or_default();
                to.stripe_depth = layout.depth.unwrap_or_default();
                to.algorithm = if layout.algorithm { SIMPLE_STRIPING } else { 0 };
            }
            Answer::Label(label) => {
                let to = &mut *data.cast::<sio_label_t>();
                let fits = label.len().min(usize::try_from(to.size).unwrap_or(usize::MAX));
                if fits > 0 {
                    std::ptr::copy_nonoverlapping(label.as_ptr(), to.data.cast(), fits);
                }
                to.size = label.len() as u64;
            }
        }
    }
}

/// # Safety
/// See [`controls`].
unsafe fn with_controls<T>(
    ops: *mut sio_control_t,
    nops: u32,
    call: impl FnOnce(&[Control]) -> (Vec<Outcome>, Result<T>),
) -> Result<T> {
    // SAFETY: by the contract of this function.
    let ops = unsafe { controls(ops, nops) }?;
    // SAFETY: as above.
    let list: Vec<Control> = ops.iter().map(|op| unsafe { read_control(op) }).collect();
    let (outcomes, result) = call(&list);
    for (at, op) in ops.iter_mut().enumerate() {
        // SAFETY: as above.
        unsafe { write_outcome(op, outcomes.get(at)) };
    }
    result.map_err(|failure| {
        if failure.code != Code::ControlFailed || !failure.reason.is_empty() {
            return failure;
        }
        // Which of the mandatory controls has failed.
        let mandatory = list.iter().zip(&outcomes).filter(|(control, _)| control.mandatory);
        let mut failures = mandatory.filter_map(|(_, outcome)| outcome.as_ref().err());
        let cause = failures.find(|f| f.code != Code::ControlWouldHaveSucceeded);
        Failure { reason: cause.map(ToString::to_string).unwrap_or_default(), ..failure }
    })
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or point to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_open(
    fd: *mut c_int,
    file_name: *const c_char,
    mode: u32,
    ops: *mut sio_control_t,
    nops: u32,
) -> sio_return_t {
    enter(|| {
        // SAFETY: by the contract of this function.
        let (fd, file_name) = unsafe { (target(fd, "fd")?, name(file_name)?) };
        let library = library()?;
        // SAFETY: as above.
        *fd = unsafe { with_controls(ops, nops, |list| library.open(file_name, mode, list)) }?;
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn sio_close(fd: c_int) -> sio_return_t {
    enter(|| library()?.close(fd))
}

/// See the header.
///
/// # Safety
/// `file_name` is NULL or points to a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_unlink(file_name: *const c_char) -> sio_return_t {
    // SAFETY: by the contract of this function.
    enter(|| library()?.unlink(unsafe { name(file_name) }?))
}

/// See the header.
///
/// # Safety
/// Both names are NULL or point to strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_rename(old: *const c_char, new: *const c_char) -> sio_return_t {
    // SAFETY: by the contract of this function.
    enter(|| library()?.rename(unsafe { name(old) }?, unsafe { name(new) }?))
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or point to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_test(
    file_name: *const c_char,
    mode: u32,
    ops: *mut sio_control_t,
    nops: u32,
) -> sio_return_t {
    enter(|| {
        // SAFETY: by the contract of this function.
        let file_name = unsafe { name(file_name) }?;
        let library = library()?;
        // SAFETY: as above.
        unsafe { with_controls(ops, nops, |list| library.test(file_name, mode, list)) }
    })
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or point to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_control(
    fd: c_int,
    ops: *mut sio_control_t,
    nops: u32,
) -> sio_return_t {
    enter(|| {
        let library = library()?;
        // SAFETY: by the contract of this function.
        unsafe { with_controls(ops, nops, |list| library.control(fd, list)) }
    })
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or point to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_hint(
    fd: c_int,
    class: u32,
    hints: *const sio_hint_t,
    len: u32,
) -> sio_return_t {
    enter(|| {
        // SAFETY: by the contract of this function.
        let (class, hints) = unsafe { hint_list(class, hints, len) }?;
        library()?.hint(fd, class, hints)
    })
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or point to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sio_hint_by_name(
    file_name: *const c_char,
    class: u32,
    hints: *const sio_hint_t,
    len: u32,
) -> sio_return_t {
    enter(|| {
        // SAFETY: by the contract of this function.
        let (file_name, (class, hints)) =
            unsafe { (name(file_name)?, hint_list(class, hints, len)?) };
        library()?.hint_by_name(file_name, class, hints)
    })
}
