-- ARGV: epoch, epoch as bytes, number, changes, blocks, completeness, longest stream
local known = redis.call('HMGET', META, 'writer', 'epoch', 'seq', 'last_id')
if not known[1] then return {'lost', 'absent'} end
if known[1] ~= WRITER then return {'fenced'} end
local seq = tonumber(known[3] or '')
if known[2] ~= ARGV[3] or not seq then return {'lost', 'behind'} end
-- Sent again, because the answer to the first time was lost.
if seq >= tonumber(ARGV[5]) then return {'ok', known[4]} end
if seq + 1 ~= tonumber(ARGV[5]) then return {'lost', 'behind'} end
local id = redis.call('XADD', DELTAS, 'MAXLEN', '~', ARGV[9], '*', 'e', ARGV[4], 's', ARGV[5], 'd', ARGV[6])
redis.call('HSET', META, 'seq', ARGV[5], 'last_id', id, 'blocks', ARGV[7], 'completeness', ARGV[8])
local first = redis.call('XRANGE', DELTAS, '-', '+', 'COUNT', '1')
return {'ok', id, first[1] and first[1][1] or '', whole(redis.call('XLEN', DELTAS))}
