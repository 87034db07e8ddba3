"""KV blocks: allocation, reference counts, and reuse of full blocks by the hash of their tokens."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_core.scheduler import Request


@dataclass(slots=True, eq=False)
class KVCacheBlock:
    """One block of `block_size` slots; free when `ref_cnt` is 0, reusable while it keeps its hash."""

    block_id: int
    ref_cnt: int = 0
    block_hash: bytes | None = None


def hash_block_tokens(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Hash of one full block and, through `parent`, of everything before it (16 bytes)."""
    packed = b"".join(token.to_bytes(4, "little") for token in token_ids)
    return hashlib.blake2b(parent + packed, digest_size=16).digest()


def hash_request_tokens(token_ids: Sequence[int], block_size: int, known: Sequence[bytes] = ()) -> list[bytes]:
    """Hashes of all full blocks of a request, going on from those already `known`."""
    hashes = list(known)
    for start in range(len(hashes) * block_size, len(token_ids) - block_size + 1, block_size):
        hashes.append(hash_block_tokens(hashes[-1] if hashes else b"", token_ids[start : start + block_size]))
    return hashes


class KVCacheManager:
    """The pool of blocks. Only the scheduler's thread calls it."""

    def __init__(self, num_blocks: int, block_size: int, enable_caching: bool) -> None:
        self.num_blocks, self.block_size, self.enable_caching = num_blocks, block_size, enable_caching
        self.free_blocks: OrderedDict[int, KVCacheBlock] = OrderedDict(
            (block_id, KVCacheBlock(block_id)) for block_id in range(num_blocks)
        )
        self.cached_blocks: dict[bytes, KVCacheBlock] = {}
        self.num_queries = self.num_hits = 0

    @property
    def usage(self) -> float:
        """Share of blocks in use, 0..1."""
        return 1.0 - len(self.free_blocks) / self.num_blocks

    def get_computed_blocks(self, request: Request) -> list[KVCacheBlock]:
        """The longest run of cached blocks that starts the request; its last token is always left to compute."""
        if not self.enable_caching or request.needs_all_hidden_states:
            return []
        blocks: list[KVCacheBlock] = []
        for block_hash in request.block_hashes[: (request.num_tokens - 1) // self.block_size]:
            block = self.cached_blocks.get(block_hash)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def allocate_slots(self, request: Request, num_new_tokens: int, computed: Sequence[KVCacheBlock] = ()) -> bool:
        """Give the request blocks for its next `num_new_tokens` tokens, after the reused `computed` ones.

        False, with nothing changed, when too few blocks are free.
        """
        start = request.num_computed_tokens + len(computed) * self.block_size
        needed = -(-(start + num_new_tokens) // self.block_size) - len(request.blocks) - len(computed)
        reused = sum(block.ref_cnt == 0 for block in computed)
        if needed > len(self.free_blocks) - reused:
            return False
        for block in computed:
            if block.ref_cnt == 0:
                del self.free_blocks[block.block_id]
            block.ref_cnt += 1
        request.blocks += computed
        request.blocks += [self._take_free_block() for _ in range(needed)]
        return True

    def _take_free_block(self) -> KVCacheBlock:
        _, block = self.free_blocks.popitem(last=False)
        if block.block_hash is not None:
            if self.cached_blocks.get(block.block_hash) is block:
                del self.cached_blocks[block.block_hash]
            block.block_hash = None
        block.ref_cnt = 1
        return block

    def cache_full_blocks(self, request: Request) -> None:
        """Make the blocks whose tokens have all been computed findable by their hash."""
        if not self.enable_caching:
            return
        full = request.num_computed_tokens // self.block_size
        if len(request.block_hashes) < full:
            request.block_hashes = hash_request_tokens(request.token_ids, self.block_size, request.block_hashes)
        for index in range(request.num_cached_blocks, full):
            block, block_hash = request.blocks[index], request.block_hashes[index]
            if block.block_hash is None and block_hash not in self.cached_blocks:
                block.block_hash = block_hash
                self.cached_blocks[block_hash] = block
        request.num_cached_blocks = max(request.num_cached_blocks, full)

    def free(self, request: Request) -> None:
        """Give all blocks of the request back, its last ones first to be reused."""
        for block in reversed(request.blocks):
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                self.free_blocks[block.block_id] = block
        request.blocks = []
        request.num_cached_blocks = 0
