//! The memory of one worker: blocks in use, blocks kept for their content, and the order in which those are given up.

use crate::hash::HashKeyed;

/// A block of one worker.
pub(crate) type BlockId = u32;

const NOBODY: u32 = u32::MAX;

/// What became findable, or stopped being so. The router learns it at the end of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KvEvent {
    Stored(u64),
    Removed(u64),
}

/// Leading blocks of a request that a pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) blocks: usize,
    /// How many of them nobody uses now: they stop being available when they are shared.
    pub(crate) idle: usize,
}

#[derive(Clone, Debug)]
struct Block {
    /// The content, once it is complete and this block is the one found for it.
    content: Option<u64>,
    users: u32,
    before: u32,
    after: u32,
}

/// A fixed number of blocks. Idle ones form a list, longest idle first; an idle block keeps its content until it is needed.
#[derive(Clone)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    by_content: HashKeyed<BlockId>,
    first_idle: u32,
    last_idle: u32,
    idle: usize,
    events: Vec<KvEvent>,
}

impl BlockPool {
    pub(crate) fn new(capacity: usize) -> Self {
        let block = Block { content: None, users: 0, before: NOBODY, after: NOBODY };
        let mut pool = Self {
            blocks: vec![block; capacity],
            by_content: HashKeyed::default(),
            first_idle: NOBODY,
            last_idle: NOBODY,
            idle: 0,
            events: Vec::new(),
        };
        for id in 0..capacity {
            pool.retire(id as BlockId);
        }
        pool
    }

    /// Blocks that somebody uses.
    pub(crate) fn active(&self) -> usize {
        self.blocks.len() - self.idle
    }

    /// Blocks that can be had, their content given up if they hold any.
    pub(crate) fn available(&self) -> usize {
        self.idle
    }

    /// How many of the leading contents are here.
    pub(crate) fn find_prefix(&self, contents: &[u64]) -> Prefix {
        let mut prefix = Prefix::default();
        for id in contents.iter().map_while(|content| self.by_content.get(content)) {
            prefix.blocks += 1;
            prefix.idle += usize::from(self.blocks[*id as usize].users == 0);
        }
        prefix
    }

    /// Uses the blocks that hold these contents, all of which are here.
    pub(crate) fn share(&mut self, contents: &[u64], into: &mut Vec<BlockId>) {
        for content in contents {
            let id = self.by_content[content];
            if self.blocks[id as usize].users == 0 {
                self.unlink(id);
            }
            self.blocks[id as usize].users += 1;
            into.push(id);
        }
    }

    /// Takes `count` idle blocks, of which there are enough, and gives up what they held.
    pub(crate) fn take(&mut self, count: usize, into: &mut Vec<BlockId>) {
        for _ in 0..count {
            let id = self.first_idle;
            self.unlink(id);
            let block = &mut self.blocks[id as usize];
            block.users = 1;
            if let Some(content) = block.content.take() {
                self.by_content.remove(&content);
                self.events.push(KvEvent::Removed(content));
            }
            into.push(id);
        }
    }

    /// Makes a filled block findable, unless another one already holds the same content.
    pub(crate) fn publish(&mut self, id: BlockId, content: u64) {
        if self.by_content.contains_key(&content) {
            return;
        }
        self.by_content.insert(content, id);
        self.blocks[id as usize].content = Some(content);
        self.events.push(KvEvent::Stored(content));
    }

    /// Stops using these blocks. The last ones are given up first later: what follows a prefix is worth less than the prefix.
    pub(crate) fn release(&mut self, ids: &mut Vec<BlockId>) {
        for id in ids.drain(..).rev() {
            self.blocks[id as usize].users -= 1;
            if self.blocks[id as usize].users == 0 {
                self.retire(id);
            }
        }
    }

    /// What changed since this was last asked.
    pub(crate) fn drain_events(&mut self, into: &mut Vec<KvEvent>) {
        into.clear();
        into.append(&mut self.events);
    }

    fn retire(&mut self, id: BlockId) {
        let last = self.last_idle;
        self.blocks[id as usize].before = last;
        self.blocks[id as usize].after = NOBODY;
        match self.blocks.get_mut(last as usize) {
            Some(block) => block.after = id,
            None => self.first_idle = id,
        }
        self.last_idle = id;
        self.idle += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { before, after, .. } = self.blocks[id as usize];
        match self.blocks.get_mut(before as usize) {
            Some(block) => block.after = after,
            None => self.first_idle = after,
        }
        match self.blocks.get_mut(after as usize) {
            Some(block) => block.before = before,
            None => self.last_idle = before,
        }
        self.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_content_is_given_up_first() {
        let mut pool = BlockPool::new(3);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        pool.take(2, &mut first);
        pool.publish(first[0], 10);
        pool.publish(first[1], 11);
        pool.release(&mut first);
        assert_eq!((pool.active(), pool.available()), (0, 3));
        assert_eq!(pool.find_prefix(&[10, 11, 12]), Prefix { blocks: 2, idle: 2 });

        // The third block never held anything, then the end of the prefix goes, then its start.
        pool.take(2, &mut second);
        assert_eq!(pool.find_prefix(&[10, 11]), Prefix { blocks: 1, idle: 1 });
        let mut events = Vec::new();
        pool.drain_events(&mut events);
        assert_eq!(events, [KvEvent::Stored(10), KvEvent::Stored(11), KvEvent::Removed(11)]);
    }

    #[test]
    fn shared_blocks_stay_until_the_last_user_leaves() {
        let mut pool = BlockPool::new(2);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        pool.take(1, &mut first);
        pool.publish(first[0], 7);
        assert_eq!(pool.find_prefix(&[7]), Prefix { blocks: 1, idle: 0 });
        pool.share(&[7], &mut second);
        pool.release(&mut first);
        assert_eq!(pool.available(), 1);
        pool.release(&mut second);
        assert_eq!((pool.available(), pool.find_prefix(&[7]).idle), (2, 1));
    }

    #[test]
    fn a_second_block_with_the_same_content_is_not_findable() {
        let mut pool = BlockPool::new(2);
        let mut blocks = Vec::new();
        pool.take(2, &mut blocks);
        pool.publish(blocks[0], 7);
        pool.publish(blocks[1], 7);
        let mut shared = Vec::new();
        pool.share(&[7], &mut shared);
        assert_eq!(shared, [blocks[0]]);
    }
}
