package main

import "github.com/spf13/cobra"

// complete gives a flag a fixed choice of words.
func complete(cmd *cobra.Command, flag string, words ...string) {
	completeWith(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

func completeWith(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, fn); err != nil {
		panic(err) // the flag is missing
	}
}
