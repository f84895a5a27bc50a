-- Becomes, or stays, the one who writes a pod's blocks.
--
-- KEYS: the mark of who wrote last, the lease of who writes.
-- ARGV: the writer, how long the mark is kept (s), the lease (ms).
-- Answers whether the writer has the lease now (1 or 0), and the mark before.
local holder = redis.call('GET', KEYS[2])
local mark = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return { 0, mark } end
-- First what a full memory does not forbid; after it the server lets the rest of the script pass. Removals are to be
-- written then, too.
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return { 1, mark }
