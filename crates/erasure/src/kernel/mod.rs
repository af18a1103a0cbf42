//! Sums of products: `out(r) = Σ c(j,r)·source(j)`, by the widest instructions
//! that the processor has.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni;
mod job;
mod scalar;

pub(crate) use job::{Job, MAX_OUTPUTS};

/// An implementation of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Byte by byte with tables; on every processor.
    Scalar,
    /// Byte shuffles of 32 bytes (AVX2).
    Avx2,
    /// Affine maps of 64 bytes (GFNI and AVX-512).
    Gfni,
}

impl Kernel {
    /// All kernels, the fastest last.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Gfni];

    /// Whether this processor supports the kernel.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Gfni => is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx512f"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Gfni => false,
        }
    }

    /// The fastest kernel that this processor supports.
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|kernel| kernel.is_available()).unwrap_or(Self::Scalar)
    }

    /// Computes a job. A kernel that the processor lacks is replaced by the scalar one.
    pub(crate) fn run<const N: usize>(self, mut job: Job<'_, '_, N>) {
        let done = match self {
            _ if !self.is_available() => 0,
            Self::Scalar => 0,
            // SAFETY: the first arm handles processors without these instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2::run(&mut job) },
            // SAFETY: the first arm handles processors without these instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Gfni => unsafe { gfni::run(&mut job) },
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Gfni => 0,
        };
        scalar::run(&mut job, done);
    }
}
