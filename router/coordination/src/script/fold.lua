-- ARGV: epoch, number of the fold, the last one confirmed, floor, the floor's entry, generation, chunks
local known = redis.call('HMGET', META, 'writer', 'epoch', 'folds', 'seq')
if not known[1] then return {'lost', 'absent'} end
if known[1] ~= WRITER then return {'fenced'} end
if known[2] ~= ARGV[3] then return {'lost', 'behind'} end
local folds = tonumber(known[3] or '0') or 0
-- Sent again, because the answer to the first time was lost.
if folds == tonumber(ARGV[4]) then return {'ok'} end
-- A server that lost what it confirmed has older chunks than the writer believes.
if folds < tonumber(ARGV[5]) or folds > tonumber(ARGV[4]) then return {'lost', 'behind'} end
if (tonumber(known[4] or '') or 0) < tonumber(ARGV[6]) then return {'lost', 'behind'} end
redis.call('HSET', META, 'folds', ARGV[4], 'floor', ARGV[6], 'floor_id', ARGV[7], 'generation', ARGV[8],
  'chunks', ARGV[9])
return {'ok'}
