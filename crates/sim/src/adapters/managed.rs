//! How do adapters get to workers: by a manager's commands, or by the workers themselves?

use homing_adapters::{Entered, Opening, When};
use homing_domain::{AdapterName, WorkerId};
use homing_scheduler::{Adapters, Ready};

use super::host::Held;
use super::world::{Due, World};

impl World {
    /// A request waits for a load.
    pub(super) fn waits(&mut self, number: usize, worker: u32, adapter: &AdapterName) {
        self.waiting.entry((worker, adapter.clone())).or_default().push(number);
        if let Some(manager) = &mut self.manager {
            manager.want(self.now, WorkerId(worker), adapter);
        }
        self.manage(Some(adapter));
    }

    /// A load or an unload is over.
    pub(super) fn moved(
        &mut self,
        worker: u32,
        job: homing_adapters::JobId,
        adapter: &AdapterName,
        (loads, well): (bool, bool),
    ) {
        let engine = &mut self.hosts[worker as usize].engine;
        let done = match (loads, well) {
            (true, true) => engine.load_adapter(adapter).map_err(|_| "it is there"),
            (false, _) => engine.unload_adapter(adapter).map_err(|_| "it is not there"),
            (true, false) => Err("a fault"),
        };
        if loads && done.is_ok() {
            self.note_load(worker, adapter);
        }
        self.outcome.failed_loads += u64::from(loads && done.is_err());
        if let Some(manager) = &mut self.manager {
            manager.done(self.now, job, done);
        }
        self.manage(Some(adapter));
    }

    /// Tells the router what changed, and carries out what is to be done.
    pub(super) fn manage(&mut self, only: Option<&AdapterName>) {
        self.tell(only);
        while let Some(command) = self.manager.as_mut().and_then(homing_adapters::Manager::next_command) {
            self.tell(Some(&command.adapter));
            self.carry_out(command.worker.0, command.job, command.adapter, &command.act);
        }
        self.wake_waiting();
    }

    /// Those whose load is over, or will not be, ask again.
    fn wake_waiting(&mut self) {
        let Some(manager) = &self.manager else { return };
        let over: Vec<(u32, AdapterName)> = self
            .waiting
            .keys()
            .filter(|(worker, adapter)| {
                let worker = WorkerId(*worker);
                manager.finds(worker, adapter) == Entered::Ready || !manager.is_coming(worker, adapter)
            })
            .cloned()
            .collect();
        for pair in over {
            for number in self.waiting.remove(&pair).unwrap_or_default() {
                self.enter(self.now, Due::Again(number));
            }
        }
    }

    /// Nobody waits for a worker that is gone.
    pub(super) fn release(&mut self, worker: u32) {
        let gone: Vec<(u32, AdapterName)> = self.waiting.keys().filter(|(of, _)| *of == worker).cloned().collect();
        for pair in gone {
            for number in self.waiting.remove(&pair).unwrap_or_default() {
                self.enter(self.now, Due::Again(number));
            }
        }
    }

    /// The router hears who has what, and what holds of one adapter.
    pub(super) fn tell(&mut self, only: Option<&AdapterName>) {
        let Some(manager) = &self.manager else { return };
        let mut touched: Vec<AdapterName> = only.cloned().into_iter().collect();
        for worker in 0..self.setup.workers {
            let served = manager.served_by(WorkerId(worker));
            let before = self.told.get(&worker);
            if !self.hosts[worker as usize].up || before == Some(&served) {
                continue;
            }
            let before = before.cloned().unwrap_or_default();
            touched.extend(before.iter().filter(|name| !served.contains(name)).cloned());
            touched.extend(served.iter().filter(|name| !before.contains(name)).cloned());
            let adapters = Adapters::Only(served.clone());
            self.told.insert(worker, served);
            self.router
                .worker_changed(self.now, WorkerId(worker), |facts| facts.adapters = adapters.clone());
        }
        for name in touched {
            self.open(&name);
        }
    }

    /// The router hears what holds of all adapters.
    pub(super) fn tell_all(&mut self) {
        let Some(manager) = &self.manager else { return };
        let names: Vec<AdapterName> = manager.names().cloned().collect();
        for name in names {
            self.open(&name);
        }
    }

    fn open(&mut self, name: &AdapterName) {
        let Some(manager) = &self.manager else { return };
        let openings = manager.openings(self.now, name);
        if self.opened.get(name) == Some(&openings) {
            return;
        }
        let ready = |opening: &Opening| {
            let ready = match opening.when {
                When::Loading(then) => Ready::At(then),
                When::Asked(wait) => Ready::After(wait),
            };
            (opening.worker, ready)
        };
        let ready: Vec<(WorkerId, Ready)> = openings.iter().map(ready).collect();
        self.router.set_openings(self.now, name, &ready);
        self.opened.insert(name.clone(), openings);
    }

    /// A worker without a manager serves those whose adapter it has, and loads for the first of the others.
    pub(super) fn load_lazily(&mut self, worker: u32) {
        let at = worker as usize;
        let queue = std::mem::take(&mut self.hosts[at].queue);
        let mut ready = Vec::new();
        for number in queue {
            let adapter = self.calls[number].adapter.clone();
            let host = &mut self.hosts[at];
            match adapter.and_then(|adapter| host.held.get_mut(&adapter)) {
                Some(held) => {
                    held.requests += 1;
                    held.last = self.now;
                    ready.push(number);
                }
                None => host.queue.push_back(number),
            }
        }
        let first = self.hosts[at].queue.front().copied();
        let wanted = first.and_then(|number| self.calls[number].adapter.clone());
        if let Some(adapter) = wanted.filter(|_| self.hosts[at].loading.is_none())
            && self.hosts[at].make_room(self.setup.slots)
        {
            self.hosts[at].loading = Some(adapter.clone());
            let (takes, well) = self.draw_load();
            let life = self.hosts[at].life;
            let due = Due::Loaded {
                worker,
                life,
                adapter,
                well,
            };
            self.enter(self.now + takes, due);
        }
        for number in ready {
            self.submit(number);
        }
    }

    /// A load of a worker's own is over.
    pub(super) fn loaded(&mut self, worker: u32, adapter: &AdapterName, well: bool) {
        let host = &mut self.hosts[worker as usize];
        host.loading = None;
        if well {
            let _ = host.engine.load_adapter(adapter);
            let held = Held {
                requests: 0,
                last: self.now,
            };
            host.held.insert(adapter.clone(), held);
            self.note_load(worker, adapter);
        } else {
            self.outcome.failed_loads += 1;
        }
        self.load_lazily(worker);
    }
}
