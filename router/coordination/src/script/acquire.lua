-- ARGV: lease ms, head kept ms, a name for the store, schema, longest lease ms
local now = clock()
local known = redis.call('HMGET', META, 'schema', 'writer', 'until', 'generation', 'chunks')
if known[1] and known[1] ~= ARGV[6] then return {'schema'} end
local left = (tonumber(known[3] or '0') or 0) - now
-- A lease longer than any is from a server whose clock was ahead of this one's.
if known[2] and known[2] ~= WRITER and left > 0 and left <= tonumber(ARGV[7]) then
  return {'held', whole(left)}
end
redis.call('SET', STORE, ARGV[5], 'NX')
redis.call('HSET', META, 'schema', ARGV[6], 'writer', WRITER, 'until', whole(now + ARGV[3]))
redis.call('PEXPIRE', META, ARGV[4])
return {'ok', known[4] or '', known[5] or ''}
