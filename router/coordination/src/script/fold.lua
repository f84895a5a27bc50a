-- ARGV: epoch, floor, the floor's entry, generation, chunks
local known = redis.call('HMGET', META, 'writer', 'epoch')
if not known[1] then return {'lost', 'absent'} end
if known[1] ~= WRITER then return {'fenced'} end
if known[2] ~= ARGV[3] then return {'lost', 'behind'} end
redis.call('HSET', META, 'floor', ARGV[4], 'floor_id', ARGV[5], 'generation', ARGV[6], 'chunks', ARGV[7])
return {'ok'}
