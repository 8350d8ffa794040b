//! The tree of cached prefixes, one node for a full page, found by the exact tokens of that page and of all before it.
//!
//! Children sit in a randomly keyed hash map and keys are compared in full, so no crafted prompt can reach another's
//! pages. Leaves nobody holds are evicted oldest first. Who holds what is [`super::PageCache`]'s to say.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::pool::PageId;

/// Part of a page's identity: a token id is its own value; values above `u32::MAX` begin what token ids do not tell.
pub type KeyElement = u64;

/// Begins the identity of a page's part of a run of media rows; behind it stand offset and length, the first row, and
/// the whole digest.
const MEDIA_MARK: KeyElement = 1 << 63;

/// Prompt positions whose content is consecutive rows of a medium, not what their token ids say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedRun {
    pub first_position: u32,
    pub len: u32,
    /// Row of the medium at the first position.
    pub first_row: u32,
    pub digest: [u8; 32],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// What a prefix is looked up by.
#[derive(Clone, Copy, Debug)]
pub struct PrefixKey<'a> {
    /// Prefixes under different salts never meet.
    pub salt: Option<&'a [u8]>,
    pub tokens: &'a [u32],
    /// In order of position; may reach beyond the tokens.
    pub media: &'a [KeyedRun],
}

impl PrefixKey<'_> {
    /// Leading full pages that two prefixes share.
    pub fn common_pages(&self, other: &Self, page_tokens: usize) -> usize {
        if self.salt != other.salt {
            return 0;
        }
        let equal = self.tokens.iter().zip(other.tokens).take_while(|(left, right)| left == right);
        let pages = equal.count() / page_tokens;
        if self.media.is_empty() && other.media.is_empty() {
            return pages;
        }
        let same = |page: &usize| self.page(*page, page_tokens) == other.page(*page, page_tokens);
        (0..pages).take_while(same).count()
    }

    /// Identity of the `index`-th page of `page_tokens` tokens, which must be full.
    fn page(&self, index: usize, page_tokens: usize) -> Vec<KeyElement> {
        let (first, end) = (index * page_tokens, (index + 1) * page_tokens);
        let mut key: Vec<KeyElement> =
            self.tokens[first..end].iter().map(|&token| KeyElement::from(token)).collect();
        for run in self.media {
            let (start, stop) = (run.first_position as usize, run.first_position as usize + run.len as usize);
            let (from, to) = (start.max(first), stop.min(end));
            if from < to {
                let first_row = run.first_row as usize + (from - start);
                key.push(MEDIA_MARK | ((from - first) as u64) << 32 | (to - from) as u64);
                key.push(first_row as u64);
                let words = run.digest.as_chunks::<8>().0;
                key.extend(words.iter().map(|word| KeyElement::from_le_bytes(*word)));
            }
        }
        key
    }
}

#[derive(Debug)]
enum Place {
    Root(Option<Vec<u8>>),
    Page { page: PageId, parent: NodeId, key: Arc<[KeyElement]> },
}

#[derive(Debug)]
struct Node {
    place: Place,
    children: HashMap<Arc<[KeyElement]>, NodeId>,
    /// Tick at which the page was last let go of; `None` while it is held.
    idle_since: Option<u64>,
}

/// See the head of this file.
#[derive(Debug)]
pub struct PrefixTree {
    page_tokens: usize,
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    roots: HashMap<Option<Vec<u8>>, NodeId>,
    /// Leaves that nobody holds, oldest first.
    evictable: BTreeSet<(u64, NodeId)>,
    tick: u64,
}

impl PrefixTree {
    pub fn new(page_tokens: usize) -> Self {
        PrefixTree {
            page_tokens,
            nodes: Vec::new(),
            vacant: Vec::new(),
            roots: HashMap::new(),
            evictable: BTreeSet::new(),
            tick: 0,
        }
    }

    /// The longest known prefix of at most `max_pages` pages, first page first.
    pub fn find(&self, key: PrefixKey<'_>, max_pages: usize) -> Vec<(NodeId, PageId)> {
        let mut found = Vec::new();
        let Some(&root) = self.roots.get(&key.salt.map(<[u8]>::to_vec)) else { return found };
        let mut at = root;
        for index in 0..max_pages {
            let page_key = key.page(index, self.page_tokens);
            let Some(&child) = self.node(at).children.get(page_key.as_slice()) else { break };
            found.push((child, self.page(child)));
            at = child;
        }
        found
    }

    /// The node of the `index`-th page of `key` below `parent` (`None` = the root of its salt). A page that is not
    /// there yet becomes `page`'s node; otherwise the node keeps the page it has.
    pub fn extend(
        &mut self,
        parent: Option<NodeId>,
        key: PrefixKey<'_>,
        index: usize,
        page: PageId,
    ) -> NodeId {
        let parent = parent.unwrap_or_else(|| self.root(key.salt));
        let page_key: Arc<[KeyElement]> = key.page(index, self.page_tokens).into();
        if let Some(&child) = self.node(parent).children.get(&page_key) {
            return child;
        }
        if let Some(since) = self.node(parent).idle_since {
            self.evictable.remove(&(since, parent));
        }
        let child = self.insert(Place::Page { page, parent, key: page_key.clone() });
        self.node_mut(parent).children.insert(page_key, child);
        child
    }

    /// Page of a node that is not a root.
    pub fn page(&self, node: NodeId) -> PageId {
        match self.node(node).place {
            Place::Page { page, .. } => page,
            Place::Root(_) => unreachable!("roots are never handed out"),
        }
    }

    /// The page of `node` got its first holder.
    pub fn mark_held(&mut self, node: NodeId) {
        if let Some(since) = self.node_mut(node).idle_since.take() {
            self.evictable.remove(&(since, node));
        }
    }

    /// The page of `node` lost its last holder.
    pub fn mark_idle(&mut self, node: NodeId) {
        let tick = self.tick;
        let entry = self.node_mut(node);
        entry.idle_since = Some(tick);
        if entry.children.is_empty() {
            self.evictable.insert((tick, node));
        }
    }

    /// Later calls of [`Self::mark_idle`] count as younger than earlier ones.
    pub fn advance(&mut self) {
        self.tick += 1;
    }

    /// What tells the `index`-th page of `key` from all others, as well as 64 bits do; the pages before it are known.
    pub fn identity(&self, key: PrefixKey<'_>, index: usize) -> u64 {
        let parent = self.find(key, index).last().map(|&(node, _)| node);
        identity(parent, key.salt, &key.page(index, self.page_tokens))
    }

    /// Forgets the leaf that has been idle longest; its page and its identity.
    pub fn evict(&mut self) -> Option<(PageId, u64)> {
        let (_, id) = self.evictable.pop_first()?;
        let node = self.remove(id);
        let Place::Page { page, parent, key } = node.place else { unreachable!("roots are never evictable") };
        let identity = match &self.node(parent).place {
            Place::Root(salt) => identity(None, salt.as_deref(), &key),
            Place::Page { .. } => identity(Some(parent), None, &key),
        };
        self.node_mut(parent).children.remove(&key);
        if self.node(parent).children.is_empty() {
            self.became_leaf(parent);
        }
        Some((page, identity))
    }

    /// Number of pages known.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.vacant.len() - self.roots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn became_leaf(&mut self, id: NodeId) {
        let node = self.node(id);
        match (&node.place, node.idle_since) {
            (Place::Root(salt), _) => {
                let salt = salt.clone();
                self.roots.remove(&salt);
                self.remove(id);
            }
            (Place::Page { .. }, Some(since)) => {
                self.evictable.insert((since, id));
            }
            (Place::Page { .. }, None) => {}
        }
    }

    fn root(&mut self, salt: Option<&[u8]>) -> NodeId {
        let salt = salt.map(<[u8]>::to_vec);
        if let Some(&root) = self.roots.get(&salt) {
            return root;
        }
        let root = self.insert(Place::Root(salt.clone()));
        self.roots.insert(salt, root);
        root
    }

    fn insert(&mut self, place: Place) -> NodeId {
        let node = Node { place, children: HashMap::new(), idle_since: None };
        match self.vacant.pop() {
            Some(id) => {
                self.nodes[id.0] = Some(node);
                id
            }
            None => {
                self.nodes.push(Some(node));
                NodeId(self.nodes.len() - 1)
            }
        }
    }

    fn remove(&mut self, id: NodeId) -> Node {
        self.vacant.push(id);
        self.nodes[id.0].take().expect("a node is removed once")
    }

    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.0].as_ref().expect("ids of held or evictable nodes stay valid")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id.0].as_mut().expect("ids of held or evictable nodes stay valid")
    }
}

/// Below a page its node stands for everything before it, below a root the salt does.
fn identity(parent: Option<NodeId>, salt: Option<&[u8]>, key: &[KeyElement]) -> u64 {
    let mut hasher = DefaultHasher::new();
    match parent {
        Some(node) => node.hash(&mut hasher),
        None => salt.hash(&mut hasher),
    }
    key.hash(&mut hasher);
    hasher.finish()
}
