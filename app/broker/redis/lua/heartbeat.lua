-- worker reason ttl_ms fingerprint... -> whether the other workers' secret is one of these; the first is this worker's
local stored, same = redis.call('GET', SECRET), false
for index = 4, #ARGV do same = same or not stored or stored == ARGV[index] end
if not same then return 0 end
redis.call('SET', SECRET, ARGV[4], 'EX', '120')
redis.call('HSET', WORKERS, ARGV[1], cmsgpack.pack({now + ARGV[3], ARGV[2]}))
return 1
