-- KEYS: .., events and droppable of each job. ARGV: id... -> forgotten jobs whose events are still to be deleted
for index = 13, #KEYS do redis.call('DEL', KEYS[index]) end
if #ARGV > 0 then redis.call('SREM', GARBAGE, unpack(ARGV)) end
return redis.call('SRANDMEMBER', GARBAGE, 100)
