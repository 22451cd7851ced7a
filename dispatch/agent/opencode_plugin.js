// leasehold:plugin. Written by leasehold setup, removed by leasehold setup --uninstall.
// It asks leasehold before a tool writes to a file, and says which session calls
// leasehold's own tools: sub-agents of opencode share one connection.
import { spawn } from "node:child_process"

const command = LEASEHOLD_COMMAND
const patience = 15000 // ms
const unchecked = "leasehold: the hook did not answer before this call, so nobody checked whether another agent has leased the files that it writes, if it writes any"

export const Leasehold = async ({ directory }) => {
  const ask = (event) =>
    new Promise((resolve) => {
      let out = ""
      const done = (answer) => {
        clearTimeout(timer)
        resolve(answer)
      }
      const child = spawn(command, ["hook", "opencode"], {
        cwd: directory,
        env: { ...process.env, LEASEHOLD_CLIENT_PID: String(process.pid) },
        stdio: ["pipe", "pipe", "ignore"],
      })
      const timer = setTimeout(() => child.kill("SIGKILL"), patience) // which also ends one that is stopped
      child.stdout.on("data", (part) => (out += part))
      child.stdin.on("error", () => {})
      child.on("error", () => done({}))
      child.on("close", (_, signal) => {
        try {
          done(out ? JSON.parse(out) : signal && event.event === "before" ? { note: unchecked } : {})
        } catch {
          done({})
        }
      })
      child.stdin.end(JSON.stringify({ dir: directory, ...event }))
    })

  return {
    "tool.execute.before": async (input, output) => {
      if (input.tool.startsWith("leasehold_")) output.args.as = input.sessionID
      const answer = await ask({ event: "before", ...agent(input), call: input.callID, tool: input.tool, args: output.args })
      if (answer.refuse) throw new Error(answer.refuse)
      if (answer.note) notes.set(input.callID, answer.note)
    },
    "tool.execute.after": async (input, output) => {
      const unknown = { resumed: !begun.has(input.sessionID), compacted: compacted.delete(input.sessionID) } // to the model
      begun.add(input.sessionID)
      const answer = await ask({ event: "after", ...agent(input), call: input.callID, tool: input.tool, ...unknown })
      for (const note of [notes.get(input.callID), answer.note]) {
        if (note && typeof output?.output === "string") output.output += "\n\n" + note
        else if (note) output?.content?.push({ type: "text", text: note }) // of a tool of an MCP server
      }
      notes.delete(input.callID)
    },
    event: async ({ event }) => {
      const info = event.properties?.info
      const id = info?.id ?? event.properties?.sessionID
      if (event.type === "session.created" && !/ \(fork #\d+\)$/.test(info?.title)) begun.add(id)
      if (event.type === "session.created" && info?.parentID) children.add(id)
      if (event.type === "session.compacted") compacted.add(id)
      if (event.type === "session.deleted" || (event.type === "session.idle" && children.has(id))) {
        await ask({ event: "session.done", session: id })
      } else if (event.type === "session.idle") {
        await ask({ event: "session.idle", ...agent({ sessionID: id }) })
      }
    },
  }
}

const agent = ({ sessionID }) => ({ session: sessionID, main: !children.has(sessionID) })
const notes = new Map() // of calls that run, whose models read them with the result
const children = new Set() // sessions of sub-agents, which end when they are idle
const begun = new Set() // sessions whose models know that nothing from before this session is theirs
const compacted = new Set() // sessions whose models have forgotten much, and have not been told what they hold
