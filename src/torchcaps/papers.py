"""The papers whose routings, networks and numbers this package reproduces."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A published paper.

    Attributes:
        key: first author and year, such as "sabour2017"; the first part of every network's and
            recipe's name.
        title: its title.
        authors: their full names in order, separated by commas.
        year: year of the version that is cited.
        url: address of its page.
    """

    key: str
    title: str
    authors: str
    year: int
    url: str

    @property
    def label(self) -> str:
        """The short citation, such as "Sabour 2017"."""
        return f"{self.authors.partition(',')[0].split()[-1]} {self.year}"


PAPERS: dict[str, Paper] = {
    paper.key: paper
    for paper in (
        Paper(
            "sabour2017",
            "Dynamic Routing Between Capsules",
            "Sara Sabour, Nicholas Frosst, Geoffrey E. Hinton",
            2017,
            "https://arxiv.org/abs/1710.09829",
        ),
        Paper(
            "hinton2018",
            "Matrix Capsules with EM Routing",
            "Geoffrey E. Hinton, Sara Sabour, Nicholas Frosst",
            2018,
            "https://openreview.net/forum?id=HJWLfGWRb",
        ),
        Paper(
            "choi2019",
            "Attention Routing Between Capsules",
            "Jaewoong Choi, Hyun Seo, Suii Im, Myungjoo Kang",
            2019,
            "https://arxiv.org/abs/1907.01750",
        ),
        Paper(
            "tsai2020",
            "Capsules with Inverted Dot-Product Attention Routing",
            "Yao-Hung Hubert Tsai, Nitish Srivastava, Hanlin Goh, Ruslan Salakhutdinov",
            2020,
            "https://arxiv.org/abs/2002.04764",
        ),
        Paper(
            "zhao2020",
            "An Efficient Agreement Mechanism in CapsNets by Pairwise Product",
            "Lei Zhao, Xiaohui Wang, Lei Huang",
            2020,
            "https://arxiv.org/abs/2004.00272",
        ),
        Paper(
            "yang2021",
            "Routing Towards Discriminative Power of Class Capsules",
            "Haoyu Yang, Shuhe Li, Bei Yu",
            2021,
            "https://arxiv.org/abs/2103.04278",
        ),
        Paper(
            "hahn2019",
            "Self-Routing Capsule Networks",
            "Taeyoung Hahn, Myeongjang Pyeon, Gunhee Kim",
            2019,
            "https://papers.nips.cc/paper/8982-self-routing-capsule-networks",
        ),
        Paper(
            "mazzia2021",
            "Efficient-CapsNet: Capsule Network with Self-Attention Routing",
            "Vittorio Mazzia, Francesco Salvetti, Marcello Chiaberge",
            2021,
            "https://arxiv.org/abs/2101.12491",
        ),
        Paper(
            "ribeiro2020",
            "Capsule Routing via Variational Bayes",
            "Fabio De Sousa Ribeiro, Georgios Leontidis, Stefanos Kollias",
            2020,
            "https://arxiv.org/abs/1905.11455",
        ),
    )
}
"""Key -> paper, in the order in which tables show them."""
