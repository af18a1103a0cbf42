//! Gives the shared library its soname, and keeps it loaded: its threads and its `pthread_atfork`
//! handlers outlive a `dlclose`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libweir.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
