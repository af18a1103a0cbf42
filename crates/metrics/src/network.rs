//! Metrics of a server's network connections.

use crate::counted::Counted;
use crate::names as n;
use crate::page::Page;

/// Writes the counters `net.*` of a server's event loops to the page.
pub fn tell_network(page: &mut Page, counted: &mut Counted) {
    let open = [("authenticated", "net.connections"), ("unauthenticated", "net.unauthenticated")];
    counted.tell_all(page, &n::CONNECTIONS, &open);
    let levels = ["args", "data", "private"];
    let protected = ["net.protected_args", "net.protected_data", "net.protected_private"];
    let protected: Vec<_> = levels.into_iter().zip(protected).collect();
    counted.tell_all(page, &n::PROTECTED, &protected);
    counted.tell(page, &n::ACCEPTED, "net.accepted");
    counted.tell(page, &n::AUTHENTICATED, "net.authenticated");
    counted.tell_prefix(page, &n::REFUSED, "net.refused_");
    counted.tell_prefix(page, &n::CLOSED, "net.closed_");
    let frames = [("received", "net.frames_received"), ("sent", "net.frames_sent")];
    counted.tell_all(page, &n::FRAMES, &frames);
    counted.tell(page, &n::BUFFER_WAITS, "net.waits_for_buffer");
}
