-- id... -> a value for each job that differs after every change
local versions = {}
for index, id in ipairs(ARGV) do
  local job = load(id)
  local state = not job and 'unknown' or is_over(job) and job.state or 'open'
  versions[index] = state .. ' ' .. (job and job.cancel and 'cancel' or '') .. ' ' .. (job and job.last or '')
end
return versions
