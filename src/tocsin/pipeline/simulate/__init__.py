"""How much work a population makes, under three ways of telling NTF routers about messages."""
