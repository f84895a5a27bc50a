-- ARGV: where the resume state is
local writer = redis.call('HGET', META, 'writer')
if not writer then return {'lost', 'absent'} end
if writer ~= WRITER then return {'fenced'} end
redis.call('HSET', META, 'resume', ARGV[3])
return {'ok'}
