//! Reduces a failing plan: leaves out clients, faults and calls while it still fails.

use crate::plan::Plan;
use crate::run;

/// Returns a smaller plan that fails too, and the number of runs needed.
pub fn shrink(plan: &Plan, max_runs: usize) -> (Plan, usize) {
    shrink_with(plan, max_runs, |plan| !run::run(plan).violations.is_empty())
}

/// As [`shrink`], for any criterion of failure.
pub fn shrink_with(
    plan: &Plan,
    max_runs: usize,
    fails: impl FnMut(&Plan) -> bool,
) -> (Plan, usize) {
    let mut shrinking = Shrinking { best: plan.clone(), runs: 0, max_runs, fails };
    loop {
        let before = shrinking.best.clone();
        shrinking.shorten();
        shrinking.empty_clients();
        shrinking.fewer_faults();
        for client in 0..plan.clients.len() {
            shrinking.fewer_calls(client);
        }
        if shrinking.best == before || shrinking.runs >= max_runs {
            return (shrinking.best, shrinking.runs);
        }
    }
}

struct Shrinking<F> {
    best: Plan,
    runs: usize,
    max_runs: usize,
    fails: F,
}

impl<F: FnMut(&Plan) -> bool> Shrinking<F> {
    fn try_plan(&mut self, plan: Plan) -> bool {
        if self.runs >= self.max_runs || plan == self.best {
            return false;
        }
        self.runs += 1;
        let fails = (self.fails)(&plan);
        if fails {
            self.best = plan;
        }
        fails
    }

    /// Ends the faulty period after the last fault.
    fn shorten(&mut self) {
        let last = self.best.faults.last().map_or(0, |fault| fault.at_ms);
        for duration_ms in [last + 1, self.best.duration_ms / 2] {
            if duration_ms < self.best.duration_ms {
                let mut plan = self.best.clone();
                plan.duration_ms = duration_ms;
                plan.faults.retain(|fault| fault.at_ms < duration_ms);
                self.try_plan(plan);
            }
        }
    }

    /// Removes all calls of clients. The clients stay, so that files keep their numbers.
    fn empty_clients(&mut self) {
        for client in 0..self.best.clients.len() {
            let mut plan = self.best.clone();
            plan.clients[client].ops.clear();
            self.try_plan(plan);
        }
    }

    fn fewer_faults(&mut self) {
        let mut chunk = self.best.faults.len().max(1);
        while chunk > 0 {
            let mut at = 0;
            while at < self.best.faults.len() {
                let mut plan = self.best.clone();
                let end = (at + chunk).min(plan.faults.len());
                plan.faults.drain(at..end);
                if !self.try_plan(plan) {
                    at += chunk;
                }
            }
            chunk /= 2;
        }
    }

    fn fewer_calls(&mut self, client: usize) {
        let mut chunk = self.best.clients[client].ops.len().max(1);
        while chunk > 0 {
            let mut at = 0;
            while at < self.best.clients[client].ops.len() {
                let mut plan = self.best.clone();
                let ops = &mut plan.clients[client].ops;
                let end = (at + chunk).min(ops.len());
                let waited: u32 = ops[at..end].iter().map(|op| op.wait_ms).sum();
                ops.drain(at..end);
                // Later calls keep their time.
                if let Some(next) = ops.get_mut(at) {
                    next.wait_ms += waited;
                }
                if !self.try_plan(plan) {
                    at += chunk;
                }
            }
            chunk /= 2;
        }
    }
}
