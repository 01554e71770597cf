"""Drawing that several charts share. It needs Altair, so figures import it when they draw."""
