package spotlights

var publishingUp = Story{
	Name:    "publishing-up",
	Title:   "A sub-lead tells its lead",
	Promise: "a sub-lead writes to its own place in the layer above: its lead reads it there, and nobody beside or below it does",
	tell: func(st *stage) {
		root := st.root()
		one, two := root.sublead("S1"), root.sublead("S2")
		lead, s1, s2, below, beside := root.connect(), one.connect(), two.connect(), one.worker("W1").connect(), root.worker("W1").connect()

		st.say("S1 leads its own layer. It writes into the layer above, with layer parent.")
		st.show("S1", s1.ask("kv_set", args{"layer": "parent", "path": "/peer/self/findings", "value": args{"races": 2}}, nil))
		st.say("Its lead reads the entry in its own layer.")
		var read struct {
			Entry *struct {
				UpdatedBy string `json:"updated_by"`
			}
		}
		st.show("the lead", lead.ask("kv_get", args{"path": "/peer/S1/findings"}, &read))
		st.want(read.Entry != nil && read.Entry.UpdatedBy == "S1", "the lead reads %+v", read)

		st.say("S2 and W1 are in that layer, too. They can neither read the entry of S1 nor see that it exists.")
		st.show("S2", s2.rejected("FORBIDDEN", "kv_get", args{"layer": "parent", "path": "/peer/S1/findings"}))
		st.show("W1", beside.rejected("FORBIDDEN", "kv_get", args{"path": "/peer/S1/findings"}))
		st.show("W1", beside.ask("kv_list", args{"glob": "/**"}, nil))
		st.say("S1→W1 works below S1. It cannot read the layer above, and nothing was written into its own.")
		st.show("S1→W1", below.rejected("FORBIDDEN", "kv_get", args{"layer": "parent", "path": "/peer/S1/findings"}))
		st.show("S1→W1", below.ask("kv_list", args{"glob": "/**"}, nil))
		for who, a := range map[*agent]args{s2: {"layer": "parent", "glob": "/**"}, beside: {"glob": "/**"}, below: {"glob": "/**"}} {
			var list struct{ Entries []struct{ Path string } }
			who.ask("kv_list", a, &list)
			st.want(len(list.Entries) == 0, "%s sees %+v", who.path, list.Entries)
		}
	},
}

var envelopeCap = Story{
	Name:    "envelope-cap",
	Title:   "A spawn too many",
	Promise: "a spawn over a cap is refused before anything has changed, and the refusal says what may be asked for instead",
	tell: func(st *stage) {
		st.say("This run may spend 10 dollars. A path may have two names, and a layer two actors besides its lead.")
		lead := st.begin(args{"budget_usd": 10, "max_depth": 2, "max_workers_per_layer": 2})
		s1, _ := lead.spawn("spawn_sublead", args{"name": "S1", "budget_usd": 6})
		st.say("The lead spawns S1 with 6 dollars, and asks for S2 with 5.")
		st.show("the lead", lead.overCap("spawn_sublead", args{"name": "S2", "budget_usd": 5}))
		st.say("The refused spawn has changed nothing: actor_list does not show S2, and no money is reserved. S2 can have the remaining 4.")
		s2, text := lead.spawn("spawn_sublead", args{"name": "S2", "budget_usd": 4})
		st.show("the lead", text)

		st.say("S1 spawns a sub-lead. Its path has two names, and that of its worker would have three.")
		deep, _ := s1.spawn("spawn_sublead", args{"name": "deep", "budget_usd": 1})
		st.show(deep.path, deep.overCap("spawn_worker", args{"name": "deeper"}))
		st.say("S1 spawns the worker itself.")
		_, text = s1.spawn("spawn_worker", args{"name": "deeper"})
		st.show("S1", text)

		st.say("The lead's layer has S1 and S2. The lead asks for a third actor.")
		st.show("the lead", lead.overCap("spawn_sublead", args{"name": "S3", "budget_usd": 3}))
		st.say("S2 ends, and has spent 1 of its 4 dollars. There is room for one actor, and there are 3 dollars for it.")
		s2.exit(1)
		_, text = lead.spawn("spawn_sublead", args{"name": "S3", "budget_usd": 3})
		st.show("the lead", text)
	},
}
