//! Gives the shared library its soname, and keeps it loaded: its threads outlive a `dlclose`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsio.so");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
