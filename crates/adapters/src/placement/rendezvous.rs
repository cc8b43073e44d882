//! Where is everybody at home?
//!
//! Adapters propose themselves to workers in their own order, and a worker with more proposals than slots keeps those who are there
//! already, then those who came first in what is wanted, then those who like it most. Whoever is turned away goes on to the next. It ends with
//! an assignment in which nobody could be better placed without making one worse whom a worker prefers, whatever the order of
//! proposals was.

use std::collections::VecDeque;

use super::{Plan, Site, Wanted, hash, order, score};

/// How much a worker would keep an adapter: who is there before who is not, then who was important enough to be told first of
/// all, then who likes it.
type Claim = (bool, u64);

/// Finds places.
pub(super) fn place(wanted: &[Wanted], sites: &[Site]) -> Plan {
    let lists: Vec<Vec<usize>> = wanted.iter().map(|one| preferences(one, sites)).collect();
    let hashes: Vec<u64> = wanted.iter().map(|one| hash(one.adapter.as_str())).collect();
    let claim = |adapter: usize, site: usize| -> Claim {
        let there = wanted[adapter].has.contains(&sites[site].worker);
        (there, score(hashes[adapter], &sites[site].name))
    };
    let mut next = vec![0_usize; wanted.len()];
    let mut holds = vec![0_u32; wanted.len()];
    let mut taken: Vec<Vec<usize>> = vec![Vec::new(); sites.len()];
    let mut open: VecDeque<usize> = (0..wanted.len()).collect();
    while let Some(adapter) = open.pop_front() {
        while holds[adapter] < wanted[adapter].replicas {
            let Some(site) = lists[adapter].get(next[adapter]).copied() else {
                break;
            };
            next[adapter] += 1;
            let slots = sites[site].slots as usize;
            if slots == 0 {
                continue;
            }
            taken[site].push(adapter);
            holds[adapter] += 1;
            if taken[site].len() > slots {
                let least = taken[site]
                    .iter()
                    .enumerate()
                    .min_by_key(|(_, one)| claim(**one, site))
                    .map(|(at, _)| at);
                let Some(turned) = least.map(|at| taken[site].swap_remove(at)) else {
                    break;
                };
                holds[turned] -= 1;
                if turned != adapter {
                    open.push_back(turned);
                }
            }
        }
    }
    let mut plan = Plan::new();
    for (site, adapters) in taken.iter().enumerate() {
        for adapter in adapters {
            let places = plan.entry(wanted[*adapter].adapter.clone()).or_default();
            places.insert(sites[site].worker);
        }
    }
    plan
}

/// Home first; then where it is, which costs nothing; then its order.
fn preferences(wanted: &Wanted, sites: &[Site]) -> Vec<usize> {
    if wanted.replicas == 0 {
        return Vec::new();
    }
    let mut all = order(&wanted.adapter, sites);
    all.retain(|at| !wanted.not.contains(&sites[*at].worker));
    let home = (wanted.replicas as usize).min(all.len());
    let rest = all.split_off(home);
    let (there, elsewhere): (Vec<usize>, Vec<usize>) =
        rest.into_iter().partition(|at| wanted.has.contains(&sites[*at].worker));
    all.extend(there);
    all.extend(elsewhere);
    all
}
