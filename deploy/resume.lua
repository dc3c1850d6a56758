-- Streams of evenkeel that outlive the replica that began them, for clients that know nothing of it. HAProxy runs this as
-- the service lua.resume (deploy/haproxy-resume.cfg): it sends the request to the listener below, which balances, with the
-- wish that events say how their stream goes on; takes that out of what it passes on; and when a replica is lost in the
-- middle, asks again for the rest. tests/e2e/chaos.py runs it while replicas are killed.
local ADDRESS, PORT = "127.0.0.1", 8090 -- bind of the frontend `balanced`
local TRIES = 40                        -- in a row without an event, half a second apart

local function request(applet, body, wish)
  local lines = { applet.method .. " " .. applet.path .. (applet.qs ~= "" and "?" .. applet.qs or "") .. " HTTP/1.1" }
  for name, values in pairs(applet.headers) do
    if name ~= "content-length" and name ~= "connection" and name ~= "transfer-encoding" and name ~= "expect" then
      for _, value in pairs(values) do lines[#lines + 1] = name .. ": " .. value end
    end
  end
  if wish then lines[#lines + 1] = "x-evenkeel-resume: true" end
  lines[#lines + 1] = "content-length: " .. #body .. "\r\nconnection: close\r\n\r\n"
  return table.concat(lines, "\r\n") .. body
end

-- The status and headers of the reply, or nil.
local function head(socket)
  local status = (socket:receive("*l") or ""):match("^HTTP/1%.1 (%d+)")
  local headers = {}
  while status do
    local line = socket:receive("*l")
    if not line then return nil end
    local name, value = line:match("^([^:]+):%s*(.-)%s*$")
    if not name then return tonumber(status), headers end
    headers[#headers + 1] = { name:lower(), value }
    headers[name:lower()] = value
  end
end

-- Calls take with what comes, until it returns false; true if that was all of the reply.
local function read(socket, headers, take)
  local length = tonumber(headers["content-length"])
  if length then
    local all = length == 0 and "" or socket:receive(length)
    if not all or #all < length then return false end
    return take(all)
  end
  while true do
    local n = tonumber((socket:receive("*l") or ""):match("^%x+") or "", 16)
    local chunk = n and (n == 0 and "" or socket:receive(n))
    if not chunk or #chunk < n or not socket:receive("*l") then return false end
    if n == 0 then return true end
    if not take(chunk) then return false end
  end
end

-- What the events of a stream have said so far, as the body's "resume".
local function resume(state)
  return "{" .. state.first .. '"tokens":[' .. table.concat(state.tokens, ",") .. "]," .. state.last .. "}"
end

local function note(state, event)
  local said = event:match('"resume":{("[^{}]*)}')
  if not said then -- [DONE] and pings; or the failure of a replica, which is not the end
    return not (state.at > 0 and event:find('"error":{', 1, true)) and event
  end
  state.first = state.first or said:match('^("id".-)"at"')
  state.tokens[#state.tokens + 1] = said:match('"tokens":%[([%d,]*)%]')
  state.last = said:match('"events".*$')
  state.at = state.at + 1
  return (event:gsub(',"evenkeel":{"resume":{[^{}]*}}', "", 1):gsub(',"resume":{"[^{}]*}', "", 1))
end

core.register_service("resume", "http", function(applet)
  local body = applet:receive() or ""
  local ours = body:match('^%s*{%s*"') and body:match('"stream"%s*:%s*true') and not body:match('"evenkeel"%s*:')
    and not applet.headers["x-evenkeel-resume"]
  local state, begun = { tokens = {}, at = 0 }, false
  local tries = 0
  while tries < TRIES do
    local socket, before, rest = core.tcp(), state.at, ""
    socket:settimeout(900)
    local sent = state.at > 0 and body:gsub("{", '{"evenkeel":{"resume":' .. resume(state) .. "},", 1) or body
    local status, headers
    if socket:connect(ADDRESS, PORT) and socket:send(request(applet, sent, ours and state.at == 0)) then status, headers = head(socket) end
    if status and not (begun and status ~= 200) and not (ours and status >= 502 and tries + 1 < TRIES) then
      local whole = headers["content-type"] == nil or not headers["content-type"]:match("event%-stream")
      local reply = {}
      local function begin()
        if begun then return end
        applet:set_status(status)
        for _, h in ipairs(headers) do
          if h[1] ~= "connection" and h[1] ~= "transfer-encoding" and h[1] ~= "content-length" then applet:add_header(h[1], h[2]) end
        end
        applet:start_response()
        begun = true
      end
      local ended = read(socket, headers, function(bytes)
        if whole then
          reply[#reply + 1] = bytes
          return true
        end
        rest = rest .. bytes
        while true do -- whole events: half of one is not passed on
          local at = rest:find("\n\n", 1, true)
          if not at then return true end
          local event = rest:sub(1, at + 1)
          if ours then event = note(state, event) end -- states that the client asked for are the client's
          if not event then return false end
          begin()
          applet:send(event)
          rest = rest:sub(at + 2)
        end
      end)
      if ended then
        begin()
        applet:send(table.concat(reply))
        socket:close()
        return
      end
    end
    socket:close()
    if begun and state.at == 0 then return end -- events without a state: nothing to go on from
    if begun and status and status >= 400 and status < 500 and status ~= 429 then return end
    tries = state.at > before and 0 or tries + 1
    core.msleep(tries == 0 and 1 or 500)
  end
  if not begun then
    applet:set_status(503)
    applet:start_response()
  end
end)
